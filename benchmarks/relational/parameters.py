"""Makes the parameters that all candidates of a model share, so that their results can be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.relational.problem import Problem

Parameters = dict[str, Tensor]
"""Name to float32 tensor. Weights act from the right, y = x @ W."""


def make_parameters(model: str, problem: Problem, seed: int = 0) -> Parameters:
    """Returns random parameters of one layer, hidden to hidden (d), with one head.

    rgcn: weight [R, d, d], root [d, d], bias [d]
    rgat: weight [R, d, d], q [d, 1], k [d, 1], bias [d]
    hgt: kqv_weight [T, d, 3d], kqv_bias [T, 3d], att [R, d, d], msg [R, d, d], pri [R],
         out_weight [T, d, d], out_bias [T, d], skip [T]
    """
    d, types, etypes = problem.hidden, problem.num_ntypes, problem.num_etypes
    generator = torch.Generator().manual_seed(seed + 1)

    def uniform(*shape: int) -> Tensor:
        bound = math.sqrt(6.0 / (2 * d))
        return (torch.rand(*shape, generator=generator) * 2 - 1) * bound

    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "rgcn": {"weight": (etypes, d, d), "root": (d, d), "bias": (d,)},
        "rgat": {"weight": (etypes, d, d), "q": (d, 1), "k": (d, 1), "bias": (d,)},
        "hgt": {
            "kqv_weight": (types, d, 3 * d),
            "kqv_bias": (types, 3 * d),
            "att": (etypes, d, d),
            "msg": (etypes, d, d),
            "pri": (etypes,),
            "out_weight": (types, d, d),
            "out_bias": (types, d),
            "skip": (types,),
        },
    }
    return {name: uniform(*shape) for name, shape in shapes[model].items()}


@dataclass(frozen=True)
class Slot:
    """Says which part of a shared parameter one tensor of a layer holds."""

    name: str
    leaf: Tensor
    index: int | None = None
    """Row of the shared parameter, or None for all of it."""
    transposed: bool = False
    columns: tuple[int, int] | None = None
    """Part of the last axis, or None for all of it."""

    def _part(self, shared: Parameters) -> Tensor:
        part = shared[self.name] if self.index is None else shared[self.name][self.index]
        part = part if self.columns is None else part[..., slice(*self.columns)]
        return (part.t() if self.transposed else part).reshape(self.leaf.shape)

    def load(self, shared: Parameters) -> None:
        """Copies the shared values into the layer."""
        with torch.no_grad():
            self.leaf.copy_(self._part(shared))

    def error(self, gradients: Parameters) -> tuple[str, float]:
        """Returns the parameter's name and the largest error of the leaf's gradient, relative to the parameter's."""
        expected, scale = self._part(gradients), float(gradients[self.name].abs().max())
        grad = torch.zeros_like(self.leaf) if self.leaf.grad is None else self.leaf.grad
        if expected.numel() == 0:
            return self.name, 0.0
        return self.name, float((grad.double() - expected).abs().max()) / max(scale, 1e-30)
