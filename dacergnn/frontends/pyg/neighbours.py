"""The graph of nearest neighbours of points, as in PyG's `knn`: a point is among its own neighbours."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dacergnn.errors import ArrayError


def nearest_neighbours(
    x_src: Tensor, x_dst: Tensor, batch_src: Tensor | None, batch_dst: Tensor | None, k: int
) -> Tensor:
    """Returns edges int64[2, E] to each destination from the ``k`` nearest sources of its example.

    Where an example has fewer sources, edges come from all. They are sorted by destination, then by source.

    Args:
        x_src: [NS, K] points.
        x_dst: [ND, K] points.
        batch_src: [NS] ascending numbers of examples; None if there is one.
        batch_dst: [ND] likewise.

    Raises:
        ArrayError: A point is not finite, or a batch does not ascend or does not fit the points.
    """
    from scipy.spatial import KDTree

    src, dst = (_points(name, x) for name, x in (("x[0]", x_src), ("x[1]", x_dst)))
    starts, stops = (_examples(f"batch[{i}]", b, len(x)) for i, b, x in ((0, batch_src, src), (1, batch_dst, dst)))
    edges_by_example: list[np.ndarray] = []
    for example in range(min(len(starts), len(stops)) - 1):
        points, first, own = src[starts[example] : starts[example + 1]], stops[example], stops[example + 1]
        count = min(k, len(points))
        if not count or own == first:
            continue
        _, near = KDTree(points).query(dst[first:own], k=count, workers=torch.get_num_threads())
        near = np.sort(near.reshape(own - first, count), axis=1) + starts[example]
        edges_by_example.append(np.stack([near.ravel(), np.arange(first, own).repeat(count)]))
    edges = np.concatenate(edges_by_example, axis=1) if edges_by_example else np.empty((2, 0), np.int64)
    return torch.from_numpy(edges).to(x_src.device)


def _points(name: str, x: Tensor) -> np.ndarray:
    points = x.detach().cpu()
    if not bool(points.isfinite().all()):
        row = int((~points.isfinite().all(1)).nonzero()[0])
        raise ArrayError(name, f"has a point that is not finite, row {row}, whose neighbours are undefined")
    return points.numpy()


def _examples(name: str, batch: Tensor | None, rows: int) -> np.ndarray:
    """Returns the first row of each example, then the number of rows."""
    if batch is None:
        return np.array([0, rows])
    numbers = batch.cpu().numpy()
    if len(numbers) != rows:
        raise ArrayError(name, f"has {len(numbers)} entries for {rows} points; give the example of each point")
    if (np.diff(numbers) < 0).any():
        raise ArrayError(name, "does not ascend; sort the points by example")
    return np.concatenate([[0], np.cumsum(np.bincount(numbers))]) if rows else np.array([0])
