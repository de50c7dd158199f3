"""Networks of linear layers and element-wise functions inside a layer, as statements of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.frontends.activations import activation_in
from dacergnn.frontends.frontend import spec

Path = tuple[str, ...]

_LINEAR = ("torch.nn.modules.linear.Linear", "torch_geometric.nn.dense.linear.Linear")


@dataclass
class RowNetwork:
    """Describes what a module of linear layers and activations does to a row ``h``.

    Args:
        steps: Statements that assign ``h`` anew.
        arrays: Specifications of the parameters that the steps read, by name.
        paths: The paths of these parameters, in the same order.
    """

    in_channels: int = 0
    out_channels: int = 0
    steps: list[str] = field(default_factory=list[str])
    arrays: dict[str, str] = field(default_factory=dict[str, str])
    paths: list[Path] = field(default_factory=list[Path])

    @classmethod
    def of(cls, module: nn.Module, path: Path) -> RowNetwork | str:
        """Returns the network of ``module``, or the name of the class of a part that has no form in programs."""
        network = cls()
        problem = network._add(module, path)
        return network if problem is None else problem

    def _add(self, module: Any, path: Path) -> str | None:
        kind: Any = type(module)
        if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
            return f"{kind.__name__} that has not been called yet"
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return f"{kind.__name__} with hooks"
        if kind is nn.Sequential:
            problems = (self._add(child, (*path, name)) for name, child in module.named_children())
            return next((p for p in problems if p is not None), None)
        if f"{kind.__module__}.{kind.__qualname__}" in _LINEAR:
            self._add_linear(module, path)
            return None
        activation = activation_in(module)
        if activation is not None:
            operands = ", ".join(["h", *map(str, activation.constants)])
            self.steps.append(f"h = {activation.name}({operands})")
            return None
        return None if kind is nn.Identity else kind.__name__

    def _add_linear(self, module: Any, path: Path) -> None:
        number = len(self.arrays)
        self.out_channels, width = module.weight.shape
        self.in_channels = self.in_channels or width
        self.arrays[f"W{number}"] = spec("ONE", self.out_channels, width)
        self.paths.append((*path, "weight"))
        step = f"h = linear(h, W{number}.T)"
        if module.bias is not None:
            self.arrays[f"b{number}"] = spec("ONE", self.out_channels)
            self.paths.append((*path, "bias"))
            step += f" + b{number}"
        self.steps.append(step)
