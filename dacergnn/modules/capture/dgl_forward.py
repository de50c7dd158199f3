"""Runs forwards over DGL graphs by what torch captures of them, with stand-ins in the places of the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.degrees import unmarked
from dacergnn.frontends.dgl.exchange import as_graph, stand_in, store
from dacergnn.frontends.dgl.graph_classes import is_graph
from dacergnn.frontends.dgl.stand_in import StandIn
from dacergnn.frontends.dgl.substitutes import install
from dacergnn.modules.autocast import is_autocast
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.modules.capture.ends import reduction_of
from dacergnn.modules.core import Core

_DIVIDED = (
    "torch's capture ends between where messages are made and where they are reduced; `torch._dynamo.explain` tells why"
)


class DGLForward(CapturedForward):
    """Runs the forward of a module that takes DGL graphs, or holds some."""

    def __init__(self, core: Core, function: Callable[..., Any]) -> None:
        super().__init__(core, function)
        self._judged = 0
        """How many graphs are known to be worth running."""
        self.failures = (Exception,)  # the forward itself tells with the graphs what a user has done wrong
        try:
            install()
        except UnsupportedCallError as reason:
            self.reason = str(reason)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.reason is not None:
            return self._as_written(self.reason, args, kwargs)
        if is_autocast():  # DGL casts what its operators take
            return self.uncompiled(*args, **kwargs)
        made: dict[int, StandIn] = {}
        held = vars(self.original)
        graphs = {name: _with_stand_ins(value, made) for name, value in held.items() if is_graph(value)}
        args, kwargs = _with_stand_ins((args, kwargs), made)
        held.update(graphs)
        try:
            result = super().call(args, kwargs)
        finally:
            held.update({name: _with_graphs(value, made) for name, value in held.items() if isinstance(value, StandIn)})
        for graph in made.values():
            store(graph)
        self._judge()
        return _with_graphs(result, made)

    def _judge(self) -> None:
        """Has later calls run as they are if messages are not compiled, since DGL's own kernels are faster then."""
        fresh, self._judged = self.graphs[self._judged :], len(self.graphs)
        if self.reason is None and any(map(_reduces_in_torch, fresh)):
            self.reason = _DIVIDED
            self.warn(_DIVIDED)

    def _gain_nothing(self) -> None:
        self.reason = self.obstacle
        self.warn(self.reason)

    def tensors_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graphs = [*_stand_ins((args, kwargs)), *_stand_ins([*vars(self.original).values()])]
        return args, kwargs, [graph.columns for graph in graphs]

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        held = vars(self.original)
        graphs = {name: value for name, value in held.items() if isinstance(value, StandIn)}
        made = {id(graph.original): graph for graph in (*graphs.values(), *_stand_ins((args, kwargs)))}
        for graph in made.values():
            graph.columns = graph.before  # what a call that has failed has left in them
        held.update(_with_graphs(graphs, made))
        try:
            return super().uncompiled(*_with_graphs(args, made), **_with_graphs(kwargs, made))
        finally:
            held.update({name: graph for name, graph in graphs.items() if held.get(name) is graph.original})


def _reduces_in_torch(graph: CapturedGraph) -> bool:
    return not graph.reader.compiles and any(reduction_of(node) is not None for node in graph.module.graph.nodes)


def _with_stand_ins(tree: Any, made: dict[int, StandIn]) -> Any:
    """Replaces graphs in a structure; ``made`` holds the stand-ins by the ids of their graphs."""
    if is_graph(tree):
        if id(tree) not in made:
            made[id(tree)] = stand_in(tree)
        return made[id(tree)]
    return _mapped(tree, lambda value: _with_stand_ins(value, made))


def _with_graphs(tree: Any, made: dict[int, StandIn]) -> Any:
    """Replaces stand-ins in a structure by their graphs, and those that the call has made by new graphs."""
    if isinstance(tree, StandIn):
        return tree.original if made.get(id(tree.original)) is tree else as_graph(tree)
    return _mapped(unmarked(tree), lambda value: _with_graphs(value, made))


def _stand_ins(tree: Any) -> list[StandIn]:
    found: list[StandIn] = []

    def look(value: Any) -> Any:
        if isinstance(value, StandIn):
            found.append(value)
        return _mapped(value, look)

    look(tree)
    return found


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    if type(tree) in (tuple, list):
        return type(tree)([function(value) for value in tree])
    if type(tree) is dict:
        return {key: function(value) for key, value in tree.items()}
    return tree
