"""Layers on other processors: on ARM by emulation, with the results of the pure expansions."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
from torch import Tensor

import dacergnn
from dacergnn import Config
from dacergnn.errors import DacergnnError
from dacergnn.target import find
from tests.compatibility.comparing import assert_same, gradients, losses
from tests.compatibility.kinds import KINDS, Kind, named
from tests.support.aarch64 import emulated_arm

pytestmark = pytest.mark.compiled

LAYERS = ("pyg.RGCNConv", "pyg.RGATConv", "pyg.HGTConv", "pyg.GCNConv", "pyg.GATConv", "pyg.EdgeConv")


@pytest.fixture
def arm() -> Iterator[str]:
    """The target of the programs."""
    with emulated_arm() as name:
        yield name


def step(kind: Kind, config: Config) -> tuple[list[Tensor], list[Tensor | None]]:
    """Losses and gradients of a layer; all layers of a kind have the same parameters."""
    layer = kind.original()
    module = dacergnn.optimize(layer, config=config, on_unsupported="error")
    found = losses(kind, module)
    sum(found).backward()  # pyright: ignore[reportAttributeAccessIssue]
    return found, gradients(module)


@pytest.mark.check
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in LAYERS], ids=named)
def test_layers_have_the_results_of_pure_expansions(kind: Kind, arm: str) -> None:
    losses_here, gradients_here = step(kind, Config(implementation=arm))
    expected, expected_gradients = step(kind, Config(implementation="pure"))
    assert_same(losses_here, expected)
    assert_same(gradients_here, expected_gradients)


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "cpu"), ("AMD64", "cpu"), ("aarch64", "cpu"), ("arm64", "cpu"), ("riscv64", "cpu-scalar"),
     ("ppc64le", "cpu-scalar")],
)  # fmt: skip
def test_processors_with_unknown_vectors_run_plain_loops(
    machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert find(None).name == name
    assert find("cpu").name == "cpu"
    with pytest.raises(DacergnnError, match="no kernels for devices of type 'mps'"):
        find(None, "mps")
