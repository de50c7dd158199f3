"""Layers whose SDFGs are saved, changed and loaded, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dace
from torch import nn

import dacergnn
from dacergnn import Config
from dacergnn.library_nodes import GraphOperator
from dacergnn.modules.layer import core_of
from dacergnn.modules.variant import Variant
from dacergnn.program import Program
from tests.modules.layers import (
    arguments,
    gradients,
    rgat,
)

Change = Callable[[dace.SDFG, dict[str, Any]], None]
PLAIN = Config(level="O0", adjacency="csr")


def optimized(layer: nn.Module | None = None, config: Config = PLAIN) -> Any:
    """A compiled layer, called with gradients: by default, an attention of one operator for each statement."""
    found = dacergnn.optimize(layer or rgat(), config=config)
    gradients(found, arguments())
    return found


def change(folder: Path, change: Change, ending: str = "_select_adjacency.sdfg") -> Path:
    """Changes a file of a folder as a script would, given the SDFG and its operators by name."""
    (path,) = folder.glob(f"*{ending}")
    sdfg = dace.SDFG.from_file(str(path))
    (state,) = sdfg.states()
    change(sdfg, {node.name: node for node in state.nodes() if isinstance(node, GraphOperator)})
    sdfg.save(str(path))
    return path


def variant_of(layer: Any) -> Variant:
    """Returns the variant that is saved: the one with the most gradients."""
    last = core_of(layer).last_call
    assert last is not None
    return max(last[0].variants, key=lambda variant: len(variant.slots))


def operators_of(layer: Any) -> list[GraphOperator]:
    return Program(variant_of(layer).compilation.forward).operators


def doubled(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    operators["out_1"].body = ['n["out_1"] = (n["out"] + bias) * 2.0']


def loaded(layer: Any, folder: Path, edit: Change = doubled) -> Any:
    layer.save_sdfg(folder)
    change(folder, edit)
    layer.load_sdfg(folder)
    return layer
