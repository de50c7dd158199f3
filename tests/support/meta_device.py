"""Meta tensors as those of a device: nobody can read them, and they do not mix with tensors on the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph, checks
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.profile import Profile
from dacergnn.modules import base
from dacergnn.modules.graphs import GraphCache
from dacergnn.program import Program, parse
from dacergnn.program.flatten import flatten


class _Encodings(Encodings):
    """Those of a graph on the processor, without their numbers."""

    def __init__(self, source: HeteroGraph, encodings: Encodings) -> None:
        super().__init__(encodings.edges)
        self.source = source
        self.take_counts(source._encodings)

    def get(self, name: str) -> Tensor:
        return self.once(name, lambda: self.source.encoding(name).to("meta"))


def on_meta(graph: HeteroGraph) -> HeteroGraph:
    """A graph that has been encoded on the meta device: its sizes are known."""
    profile = Profile.of(graph)  # counts
    found = graph.to("meta")
    found._encodings = _Encodings(graph, found._encodings)
    found.derived[Profile] = profile
    found.derived |= {k: v.to("meta") for k, v in graph.derived.items() if isinstance(v, Tensor)}
    return found


class FixedGraph(GraphCache):
    """Knows one graph, which all calls are about."""

    def __init__(self, graph: HeteroGraph) -> None:
        super().__init__()
        self.graph = graph

    def find(self, owner: object, key: Any, encode: Callable[[], HeteroGraph]) -> HeteroGraph:
        return self.graph

    def find_edges(self, *_: Any) -> HeteroGraph:
        return self.graph


class StubProgram:
    """Takes and returns what a compiled program does, on the device of its graph; gradients lead to all inputs."""

    calls = 0
    step_config = Config()

    def __init__(self, program: ProgramSource, dtype: torch.dtype, *_: Any, **__: Any) -> None:
        bindings = dict(program.bindings)
        view = Program(parse(program.source, **bindings))
        self.inputs = list(flatten(program.source, bindings).arrays)
        self.dtype = dtype
        self.variants: list[Any] = []
        self._outputs = [(view.space(n), view.sdfg.arrays[n].shape[1:]) for n in view.outputs]

    def __call__(self, graph: HeteroGraph, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        assert [t.device for t in tensors] == [graph.device] * len(tensors)
        assert [t.dtype for t in tensors] == [self.dtype] * len(tensors)
        StubProgram.calls += 1
        link = torch.stack([t.sum() for t in tensors]).sum()
        return tuple(link.new_zeros((graph.size(space), *shape)) + link for space, shape in self._outputs)

    def stacked(self, graph: HeteroGraph, tensors: list[Tensor], *_: Any) -> tuple[Tensor, ...]:
        return self(graph, tensors)


@pytest.fixture
def meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it lasts, layers take meta tensors, and what they would run are stubs."""
    monkeypatch.setattr(checks, "DEVICES", ("cpu", "cuda", "meta"))
    monkeypatch.setattr(StubProgram, "calls", 0)
    monkeypatch.setattr(base, "compiled_program", StubProgram)


def moved(tree: Any) -> Any:
    """Arguments with tensors on the meta device; features ask for gradients."""
    if isinstance(tree, Tensor):
        return tree.detach().to("meta").requires_grad_(tree.is_floating_point())
    if type(tree) in (tuple, list):
        return type(tree)(map(moved, tree))
    return {k: moved(v) for k, v in tree.items()} if isinstance(tree, dict) else tree
