"""Runs forwards of PyG's layers as they are, but captures `propagate`: for edges that torch does not capture itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, fx, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.pyg.adjacency import Adjacency, install, refuse_adjacency
from dacergnn.frontends.pyg.given_edges import is_matrix
from dacergnn.frontends.pyg.message_passing import is_message_passing, plain
from dacergnn.frontends.symbolic.callers import text_of
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.core import Core
from dacergnn.modules.runner import Runner
from dacergnn.modules.user_code import looks_at_objects, user_functions


class _Captured(partial[Any]):
    """Stands in place of a layer's `propagate` while its forward runs."""


class CapturedPropagate(CapturedForward):
    """Runs `propagate` over a stand-in for a sparse matrix, or over the plain tensor of an `EdgeIndex`.

    What the forward does before and after works on the objects that the user has passed.
    """

    whole = True

    def __init__(self, core: Core) -> None:
        super().__init__(core, _propagate)
        install()

    def _begin(self) -> None:
        super()._begin()
        forwards = [type(part).forward for part in self.original.modules()]
        functions = [f for f in user_functions(self.original) if f not in forwards]
        looks = next((f.__qualname__ for f in functions if looks_at_objects(f.__code__)), None)
        self.reason = None if looks is None else f"{looks} compares objects or their types, and edges are others in it."

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of the layer."""
        layers = [*filter(self._is_run, self.module.modules())]
        for held in map(vars, layers):
            if "propagate" in held and not isinstance(held["propagate"], _Captured):  # other threads may run the layer
                self.warn("propagate was set on the layer; remove it.")
                return Runner.uncompiled(self, *args, **kwargs)
        for layer in layers:
            vars(layer)["propagate"] = _Captured(self._propagate, layer)
        try:
            return Runner.uncompiled(self, *args, **kwargs)
        finally:
            for layer in layers:
                vars(layer).pop("propagate", None)

    def _is_run(self, part: nn.Module) -> bool:
        """Returns whether a part of the module propagates, and is no compiled layer, which runs its own calls."""
        return is_message_passing(part) and (part is self.module or not hasattr(part, "_dacergnn"))

    def _propagate(self, layer: Any, edge_index: Any, size: Any = None, **options: Any) -> Any:
        if hasattr(edge_index, "as_tensor"):
            if _is_fused(layer, edge_index):
                reason = "message_and_aggregate has rules of its own for a sorted EdgeIndex."
                return self.fall_back(reason, (layer, edge_index, size), options, expected=False)
            edge_index, size = plain(edge_index), (edge_index.num_rows, edge_index.num_cols)
        elif isinstance(edge_index, Tensor) and is_matrix(edge_index):
            edge_index = self.core.graphs.adjacencies.stand_in(edge_index)
        return self.call((layer, edge_index, size), options)

    def _keep(self, module: fx.GraphModule, examples: Sequence[Any]) -> Any:
        if any(isinstance(example, Adjacency) for example in examples):
            raise UnsupportedCallError("torch.sparse.mm of an adjacency; call torch_geometric.utils.spmm.")
        return super()._keep(module, examples)

    def _fail(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if refuse_adjacency.__name__ in str(error):
            place = text_of(str(error))
            error = UnsupportedCallError(f"what is done with an adjacency has no form in a program ({place}).")
        return super()._fail(error, args, kwargs)

    def tensors_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return [a.numbers if isinstance(a, Adjacency) else a for a in args[1:]], kwargs

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        layer, edge_index, size = args
        real = edge_index.matrix if isinstance(edge_index, Adjacency) else edge_index
        return self.function(self.module, layer, real, size, **kwargs)


def _is_fused(layer: Any, edge_index: Any) -> bool:
    """Returns whether a layer treats an `EdgeIndex` as a whole, in another way than its messages one by one."""
    fuses = layer.fuse and getattr(layer, "SUPPORTS_FUSED_EDGE_INDEX", False) and edge_index.is_sorted_by_col
    known = type(layer).message_and_aggregate.__module__.startswith("torch_geometric.")
    return fuses and not (known and layer.aggr in ("add", "sum", "mean"))


def _propagate(_module: Any, layer: Any, edge_index: Any, size: Any, **options: Any) -> Any:
    return type(layer).propagate(layer, edge_index, size=size, **options)
