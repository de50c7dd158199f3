"""Makes the candidates that users compare: a model as it is, and compiled by strategies of caching."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dacergnn.api import explain, optimize
from dacergnn.bench.calls import deviation, inference, random_like, training_step
from dacergnn.bench.runner import Experiment, Ready
from dacergnn.bench.subject import Subject
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.plan import Plan

ORIGINAL = "original"
"""Names the candidate that is not compiled; the others are named by their strategy of caching."""


@dataclass(frozen=True)
class Strategies(Experiment[str]):
    """Compares a subject with itself compiled.

    Args:
        plan: A plan to compile by, as JSON; "" for none.
    """

    subject: Subject
    plan: str = ""

    def __str__(self) -> str:
        return str(self.subject)

    def original(self) -> str:
        """Returns the name of the original."""
        return ORIGINAL

    def ready(self, candidate: str) -> Ready:
        """Returns the original, or what a strategy compiles of it."""
        model, arguments = self._made(candidate)
        step = training_step(model, arguments, seed=random_like)

        def check() -> float | str:
            if not self._exact:
                return "not compared: the original has no float64"
            trains = model.training
            outputs, gradients = training_step(model.eval(), arguments, seed=random_like)()  # without dropout
            model.train(trains)
            pairs = zip([*outputs, *gradients], self._exact, strict=True)
            return max(deviation(found.detach(), exact.detach()) for found, exact in pairs)

        def facts() -> Row:
            if candidate == ORIGINAL:
                return {}
            builds = [build for layer in explain(model).layers for build in layer.builds if build.gradients]
            return {"saved_mb": sum(build.saved_bytes for build in builds) / 1e6}

        return Ready({"infer": inference(model, arguments), "train": step}, check, facts)

    def _made(self, candidate: str) -> tuple[nn.Module, tuple[Any, ...]]:
        model, arguments = self.subject.made()
        if candidate == ORIGINAL:
            return model, arguments
        plan = Plan.from_json(self.plan) if self.plan else None
        compiled = optimize(model, config=Config(caching=candidate, plan=plan))
        if not compiled_parts(compiled):
            raise DacergnnError(f"{self}: nothing of this model is compiled; dacergnn.explain says why.")
        return compiled, arguments

    @cached_property
    def _exact(self) -> Sequence[Tensor]:
        """Returns results and gradients of the original in float64; nothing if it does not run so."""
        model, arguments = self._made(ORIGINAL)
        exact = copy.deepcopy(model).double().eval()
        try:
            outputs, gradients = training_step(exact, tree_map_only(Tensor, _double, arguments), seed=random_like)()
        except Exception:  # a model of users may be for one element type alone
            return []
        return [*outputs, *gradients]


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
