"""Runs calls of a layer of PyG without a front end by what torch's Dynamo captures of its forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dacergnn.errors import UnsupportedLayerError
from dacergnn.modules.autocast import ResultTypes, is_autocast, with_types, without_autocast
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.capture.captured_propagate import CapturedPropagate
from dacergnn.modules.core import Core
from dacergnn.modules.elements import cast
from dacergnn.modules.runner import Runner
from dacergnn.runtime.dynamo import skipped_by_dynamo

_MOST_IN_A_ROW = 8
"""Limits how many calls in a row are captured anew, such as those of a layer that computes with a number it reads."""


class CapturedLayer(CapturedForward):
    """Runs a layer, whose options and parts may be others at every call.

    Of calls over sparse tensors or an `EdgeIndex`, which torch does not capture, `propagate` is captured.
    """

    def __init__(self, core: Core) -> None:
        super().__init__(core, type(core.original).forward)  # that of an instance runs around this one
        if core.original.decomposed_layers != 1:
            option, remedy = "decomposed_layers", "leave it at 1; nothing is gained from it"
            raise UnsupportedLayerError(option, core.original.decomposed_layers, remedy, core.kind)
        self.most_in_a_row = _MOST_IN_A_ROW
        self._within = CapturedPropagate(core)
        self._result_types = ResultTypes(core.original)

    def _begin(self) -> None:
        self.function = type(self.original).forward
        super()._begin()

    def forget_calls(self) -> None:
        super().forget_calls()
        self._within.forget_calls()

    @skipped_by_dynamo
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._within.forward if any(map(_is_wrapped, tree_leaves((args, kwargs)))) else super().call
        if not is_autocast():
            result = run(args, kwargs)
            self.check_plan()
            return result
        types = self._result_types.known(args, kwargs)
        if types is None:  # nobody may run a user's own forward for its types alone
            return self._result_types.note(args, kwargs, self.uncompiled(*args, **kwargs))
        parameter = next(self.original.parameters(), None)
        if parameter is not None:  # programs are recorded in the type of the parameters
            args, kwargs = cast((args, kwargs), parameter.dtype)
        with without_autocast():
            return with_types(run(args, kwargs), types)

    @property
    def module(self) -> nn.Module:
        """Returns the layer that users call, which hooks and methods of the layer hold."""
        return self.core.find_self() or self.original

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        return Runner.uncompiled(self, *args, **kwargs)


def _is_wrapped(value: Any) -> bool:
    """Returns whether a value is a sparse tensor, or wraps a tensor, as an `EdgeIndex` does."""
    return isinstance(value, Tensor) and (value.layout is not torch.strided or hasattr(value, "as_tensor"))
