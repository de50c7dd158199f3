"""Features that are read from files, results that are written to files, and the memory that this takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import ArrayError, UnsupportedCallError
from dacergnn.layerwise import stage_runs
from dacergnn.layerwise.arrays import take
from tests.layerwise.samples import (
    EDGE_ARRAYS,
    METADATA,
    TYPED_EDGES,
    K,
    M,
    N,
    R,
    assert_same,
    draw,
    drawn,
    edges,
    pyg,
    typed_features,
)


def saved(path: Path, values: Tensor) -> npt.NDArray[Any]:
    """Returns the values, mapped from a file that can only be read."""
    np.save(path, values.numpy())
    return np.load(path, mmap_mode="r")


def layers() -> list[Any]:
    return [drawn(pyg().SAGEConv(K, M)), torch.relu, drawn(pyg().RGCNConv(M, M, R))]


def expected() -> Tensor:
    first, _, second = layers()
    with torch.no_grad():
        return second(first(draw(N, K), edges()).relu(), edges(), EDGE_ARRAYS["edge_type"])


def test_features_and_edge_arrays_are_read_from_files(tmp_path: Path) -> None:
    x = saved(tmp_path / "x.npy", draw(N, K))
    kinds = saved(tmp_path / "kinds.npy", EDGE_ARRAYS["edge_type"])
    assert_same(dacergnn.inference(layers(), edges(), x, batch=4, edge_type=kinds), expected())


def test_tensors_from_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(draw(N, K).numpy().tobytes())
    x = torch.from_file(str(tmp_path / "x"), size=N * K).view(N, K)
    assert_same(dacergnn.inference(layers(), edges(), x, batch=4, edge_type=EDGE_ARRAYS["edge_type"]), expected())


def test_results_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    found = dacergnn.inference(
        layers(), edges(), draw(N, K), batch=4, out=path, edge_type=EDGE_ARRAYS["edge_type"]
    )  # fmt: skip
    assert_same(found, expected())
    assert_same(torch.from_numpy(np.load(path)), expected())
    assert [file.name for file in tmp_path.iterdir()] == ["out.npy"]


def test_a_file_may_be_replaced_by_its_results(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    x = saved(path, draw(N, K))
    dacergnn.inference(layers()[0], edges(), x, batch=4, out=str(path))
    assert_same(torch.from_numpy(np.load(path)), layers()[0](draw(N, K), edges()).detach())


def test_a_file_that_is_read_takes_no_results(tmp_path: Path) -> None:
    x = saved(tmp_path / "x.npy", draw(N, K))
    out = np.load(tmp_path / "x.npy", mmap_mode="r+")
    with pytest.raises(ArrayError, match="out lies in the memory of x"):
        dacergnn.inference(drawn(pyg().SAGEConv(K, K)), edges(), x, batch=4, out=out)


def test_a_refused_model_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCallError):
        dacergnn.inference(
            [layers()[0], lambda rows: rows.cumsum(0)], edges(), draw(N, K), out=tmp_path / "out.npy", batch=4
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["tensor", "array", "memmap"])
def test_results_in_an_array(kind: str, tmp_path: Path) -> None:
    shape = (N, M)
    out: Any = torch.full(shape, torch.nan) if kind == "tensor" else np.full(shape, np.nan, np.float32)
    if kind == "memmap":
        out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, shape)
    found = dacergnn.inference(layers(), edges(), draw(N, K), batch=4, out=out, edge_type=EDGE_ARRAYS["edge_type"])
    assert_same(torch.as_tensor(out), expected())
    assert found.data_ptr() == torch.as_tensor(out).data_ptr()


def test_typed_results_in_files(tmp_path: Path) -> None:
    layer, x = drawn(pyg().HGTConv(M, M, METADATA, heads=2)), typed_features()
    mapped = {kind: saved(tmp_path / f"{kind}.npy", rows) for kind, rows in x.items()}
    found = dacergnn.inference(layer, TYPED_EDGES, mapped, batch=2, out={"t9": tmp_path / "out.npy"})
    with torch.no_grad():
        full = layer(x, TYPED_EDGES)
    assert_same(found, {kind: full[kind] for kind in found})
    assert_same(torch.from_numpy(np.load(tmp_path / "out.npy")), full["t9"])


def test_results_without_rows_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    index = torch.zeros(2, 0, dtype=torch.int64)
    dacergnn.inference([layers()[0], layers()[0].__class__(M, 3).eval()], index, draw(0, K), out=path)
    assert np.load(path).shape == (0, 3)


class Skip(nn.Module):
    """Two layers that are aggregated with the encoded features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode, self.conv, self.last = nn.Linear(width, M), pyg().SAGEConv(M, M), pyg().GCNConv(M, M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.encode(x)
        hidden = self.conv(first, edge_index).relu() + first
        return torch.cat([first, hidden, self.last(hidden, edge_index)], 1)


def test_a_model_with_skips_in_files(tmp_path: Path) -> None:
    model, x = drawn(Skip(K)), draw(N, K)
    with torch.no_grad():
        expected = model(x, edges())
    path = tmp_path / "out.npy"
    found = dacergnn.inference(model, edges(), saved(tmp_path / "x.npy", x), batch=7, out=path)
    assert_same(found, expected)
    assert_same(torch.from_numpy(np.load(path)), expected)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.npy", "x.npy"]


def test_memory_is_that_of_one_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a ring of 20,000 nodes a range of 500 reads about as many rows; features take 40 MB."""
    nodes, width, batch = 20_000, 512, 500
    x = saved(tmp_path / "x.npy", draw(nodes, width))
    index = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    read: list[int] = []

    def counted(array: Any, rows: Tensor, device: torch.device) -> Tensor:
        read.append(len(rows))
        return take(array, rows, device)

    monkeypatch.setattr(stage_runs, "take", counted)
    model = drawn(Skip(width))
    dacergnn.inference(model, index, x, batch=batch)  # what torch captures takes memory of Python, too
    tracemalloc.start()
    try:
        found = dacergnn.inference(model, index, x, batch=batch, out=tmp_path / "out.npy")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(read) == 2 * batch  # with self loops an edge each for both ends
    assert peak < 16_000_000  # of what NumPy holds: a range is 1 MB, and Python's own objects are counted as well
    assert found.shape == (nodes, 3 * M)
