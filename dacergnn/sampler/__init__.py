"""Samplers of neighbours in C++, for PyG's loaders; they need torch_geometric, but neither pyg-lib nor torch-sparse."""

from __future__ import annotations

try:
    import torch_geometric  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    raise ImportError(
        f"dacergnn.sampler needs torch_geometric, which cannot be imported here ({error}); "
        "install it with pip install 'dacergnn[pyg]'."
    ) from error

from dacergnn.sampler.hgt_sampler import HGTSampler
from dacergnn.sampler.loaders import hgt_loader, link_neighbor_loader, neighbor_loader
from dacergnn.sampler.neighbor_sampler import NeighborSampler

__all__ = ["HGTSampler", "NeighborSampler", "hgt_loader", "link_neighbor_loader", "neighbor_loader"]
