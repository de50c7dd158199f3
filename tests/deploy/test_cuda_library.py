"""Exported libraries for CUDA: compiled by nvcc, and run in emulation, whose streams do nothing before one waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dacergnn
from dacergnn.deploy.library import ExportedLibrary
from tests.deploy.networks import Trained, assert_equal, leaves, trained
from tests.support.device_library import EmulatedModel
from tests.support.emulated_device import emulated_builds

Exports = Callable[[str], tuple[Trained, ExportedLibrary]]
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Returns a function that exports a network once for all tests."""
    made: dict[str, tuple[Trained, ExportedLibrary]] = {}

    def of(name: str) -> tuple[Trained, ExportedLibrary]:
        if name not in made:
            network = trained(name)
            model = dacergnn.optimize(network.model)
            with emulated_builds():
                library = dacergnn.export(
                    model, tmp_path_factory.mktemp("cuda"), example=network.arguments(30, 90), cuda_arch=(80,)
                )
            made[name] = network, library
        return made[name]

    return of


@pytest.mark.parametrize("name", ["GCN", "HGT", "HeteroConv-SAGE"])
def test_results_on_graphs_of_several_sizes(name: str, exports: Exports) -> None:
    network, made = exports(name)
    library = EmulatedModel(made)
    sizes = [(60, 200), *[(3 + seed % 9, seed % 13) for seed in range(8)], (0, 0), (1, 0), (1, 1)]
    with torch.no_grad():
        original = dacergnn.revert(network.model)
        for seed, (nodes, edges) in enumerate(sizes):
            arguments = network.arguments(nodes, edges, seed)
            assert_equal(library(*leaves(arguments)), leaves(original(*arguments)))
