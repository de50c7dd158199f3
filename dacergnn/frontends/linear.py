"""Linear layers that programs compute, and the networks of users that begin with one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.frontends.frontend import handled_class
from dacergnn.frontends.parameters import Parameters

_LINEAR = ("torch_geometric.nn.dense.linear.Linear", "torch.nn.modules.linear.Linear")
_KEEPS_WIDTH = (
    *(nn.Identity, nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid),
    *(nn.Tanh, nn.Softplus, nn.Softsign, nn.LayerNorm, nn.Softmax, nn.LogSoftmax),
)


def is_linear(module: Any) -> bool:
    """Returns whether a program may compute this layer: a plain Linear with a weight of known shape, without hooks."""
    weight = getattr(module, "weight", None)
    known = isinstance(weight, Tensor) and not isinstance(weight, UninitializedParameter)
    return known and handled_class(module, _LINEAR) is not None and not has_hooks(module)


def is_torch(function: object) -> bool:
    """Returns whether an activation is one of torch's, or None: it draws no random numbers, and keeps no state."""
    kind = type(function) if isinstance(function, nn.Module) else function
    return function is None or str(getattr(kind, "__module__", "")).startswith("torch.")


class ResultNetwork:
    """Describes the network that a layer applies to its results: a first Linear by a program, the rest in torch.

    Args:
        layer: The layer that has it.
        name: The attribute, a module or function, or None for the identity.
    """

    def __init__(self, layer: nn.Module, name: str) -> None:
        self.name = name
        whole: Any = getattr(layer, name)
        self.in_sequence = type(whole) is nn.Sequential and not has_hooks(whole)
        children: dict[str, Any] = vars(whole)["_modules"] if self.in_sequence else {}
        first: Any = next(iter(children.values()), None) if self.in_sequence else whole
        self.has_linear = is_linear(first)
        self.shape = (0, 0)
        """The shape of the weight, [out, in]."""
        paths: list[tuple[str, ...]] = []
        if self.has_linear:
            path = (name, next(iter(children))) if self.in_sequence else (name,)
            paths = [(*path, p) for p in ("weight", "bias") if getattr(first, p) is not None]
            self.shape = tuple(first.weight.shape)
        self.has_bias = len(paths) > 1
        self._parameters = Parameters(layer, paths)

    def parameters(self, layer: nn.Module) -> list[Tensor]:
        """Returns weight and bias of the Linear, as far as there are any, from ``layer``, which may be a stand-in."""
        return self._parameters.read(layer)

    def rest(self, layer: Any) -> list[Callable[[Any], Any]]:
        """Returns the functions that come after the Linear."""
        whole: Any = getattr(layer, self.name)
        if self.has_linear:
            return [*vars(whole)["_modules"].values()][1:] if self.in_sequence else []
        return [] if whole is None else [whole]

    def finish(self, layer: Any, rows: Any) -> Any:
        """Applies the rest of the network to the results of its Linear."""
        for function in self.rest(layer):
            rows = function(rows)
        return rows

    def width(self, layer: Any, width: int) -> int | None:
        """Returns the columns of the results if the program's have ``width``; None if a module is not known.

        A known module draws no random numbers and keeps no state.
        """
        columns: int | None = width
        for module in _leaves(self.rest(layer)):
            if is_linear(module):
                columns = module.weight.size(0)
            elif type(module) not in _KEEPS_WIDTH and not (type(module) is nn.Dropout and not module.training):
                return None
        return columns


def _leaves(modules: Iterable[Any]) -> Iterable[Any]:
    for module in modules:
        if type(module) is nn.Sequential:
            yield from _leaves(vars(module)["_modules"].values())
        else:
            yield module


def has_hooks(module: Any) -> bool:
    """Returns whether a call of the module does more than its forward."""
    return bool(module._forward_pre_hooks) or observed(module)


def observed(module: Any) -> bool:
    """Returns whether hooks see the results of the module, or their gradients."""
    return bool(module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)
