"""Runs forwards of PyG's layers as they are, but captures `propagate`: for edges that torch does not capture itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, fx

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.pyg.adjacency import Adjacencies, Adjacency, install, refuse_adjacency
from dacergnn.frontends.pyg.given_edges import is_matrix
from dacergnn.frontends.pyg.message_passing import plain
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
        self._adjacencies = Adjacencies()
        install()

    def _begin(self) -> None:
        super()._begin()
        forward = type(self.original).forward
        functions = [f for f in user_functions(self.original) if f is not forward]
        looks = next((f.__qualname__ for f in functions if looks_at_objects(f.__code__)), None)
        self.reason = None if looks is None else f"{looks} compares objects or their types, and edges are others in it."

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of the layer."""
        held = vars(self.original)
        if "propagate" in held and not isinstance(held["propagate"], _Captured):  # another thread may run the layer
            return self.fall_back("propagate was set on the layer; remove it.", args, kwargs, expected=False)
        held["propagate"] = _Captured(self._propagate, self.module)
        try:
            return Runner.uncompiled(self, *args, **kwargs)
        finally:
            held.pop("propagate", None)

    def _propagate(self, layer: Any, edge_index: Any, size: Any = None, **options: Any) -> Any:
        if hasattr(edge_index, "as_tensor"):
            if _is_fused(layer, edge_index):
                reason = "message_and_aggregate has rules of its own for a sorted EdgeIndex."
                return self.fall_back(reason, (edge_index, size), options, expected=False)
            edge_index, size = plain(edge_index), (edge_index.num_rows, edge_index.num_cols)
        elif isinstance(edge_index, Tensor) and is_matrix(edge_index):
            edge_index = self._adjacencies.stand_in(edge_index)
        return self.call((edge_index, size), options)

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
        return [a.numbers if isinstance(a, Adjacency) else a for a in args], kwargs

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        edge_index, *others = args
        real = edge_index.matrix if isinstance(edge_index, Adjacency) else edge_index
        return self.function(self.module, real, *others, **kwargs)


def _is_fused(layer: Any, edge_index: Any) -> bool:
    """Returns whether a layer treats an `EdgeIndex` as a whole, in another way than its messages one by one."""
    fuses = layer.fuse and getattr(layer, "SUPPORTS_FUSED_EDGE_INDEX", False) and edge_index.is_sorted_by_col
    known = type(layer).message_and_aggregate.__module__.startswith("torch_geometric.")
    return fuses and not (known and layer.aggr in ("add", "sum", "mean"))


def _propagate(module: Any, edge_index: Any, size: Any, **options: Any) -> Any:
    return type(module).propagate(module, edge_index, size=size, **options)
