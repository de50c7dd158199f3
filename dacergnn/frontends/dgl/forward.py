"""Modules whose forward takes DGL graphs: run as they are, with stand-ins for the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.recorder import Recorder
from dacergnn.frontends.dgl.stand_in import StandIn, is_graph
from dacergnn.frontends.symbolic import Runtime, Trace, Tracer
from dacergnn.frontends.symbolic.factories import Factories
from dacergnn.frontends.symbolic.functions import running
from dacergnn.frontends.symbolic.value import Value


class ForwardTracer(Tracer):
    """Records a forward: ``function``, which takes the module first, or the forward of the class if it is None."""

    def __init__(self, module: nn.Module, function: Callable[..., Any] | None = None) -> None:
        self.module: Any = module
        self.function = function or type(module).forward

    def call(self, runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trace = Trace(runtime)
        recorder = Recorder(trace)
        graphs: dict[int, StandIn] = {}

        def wrap(tree: Any) -> Any:
            if is_graph(tree):
                trace.place(torch.device(tree.device))
                if id(tree) not in graphs:
                    graphs[id(tree)] = StandIn(recorder, tree)
                return graphs[id(tree)].graph
            if type(tree) in (tuple, list):
                return type(tree)([wrap(v) for v in tree])
            if type(tree) is dict:
                return {k: wrap(v) for k, v in tree.items()}
            return trace.wrap(tree)

        stand_in = object.__new__(type(self.module))
        stand_in.__dict__.update(self.module.__dict__)
        stand_in.__dict__.update({k: wrap(v) for k, v in self.module.__dict__.items() if is_graph(v)})
        args, kwargs = wrap(args), wrap(kwargs)
        if not graphs:
            raise UnsupportedCallError("there is no DGL graph among the arguments of forward.")
        before = dict(stand_in.__dict__)
        with recorder.active():
            counts = {int(g.original.num_edges(r)) for g in graphs.values() for r in g.original.canonical_etypes}
            with Factories(trace, counts), running(trace):
                result = self.function(stand_in, *args, **kwargs)
            parts = [m for m in self.module.modules() if m is not self.module]
            outcome: Any = (
                result,
                {k: v for k, v in stand_in.__dict__.items() if k not in before or before[k] is not v},
                [{k: v for k, v in m.__dict__.items() if isinstance(v, Value)} for m in parts],
                [g.changes() for g in graphs.values()],
            )
            outcome = trace.finish(outcome)
        result, own, others, stored = _originals(outcome, {id(g.graph): g.original for g in graphs.values()})
        for module, changed in zip([self.module, *parts], [own, *others], strict=True):
            module.__dict__.update(changed)
        for graph, changed in zip(graphs.values(), stored, strict=True):
            if graph.store(changed):
                trace.once("it leaves data in the graph; with g.local_scope() it would not")
        return result


def _originals(tree: Any, graphs: dict[int, Any]) -> Any:
    """Replaces stand-ins in a structure with the user's graphs."""
    if id(tree) in graphs:
        return graphs[id(tree)]
    if type(tree) in (tuple, list):
        return type(tree)([_originals(v, graphs) for v in tree])
    if type(tree) is dict:
        return {k: _originals(v, graphs) for k, v in tree.items()}
    return tree
