"""Gradients that stay None: parameters get them if a backward reaches none of their results.

A program computes several results at once, a layer over several types even in one array, so that its backward has a
gradient for every parameter. In the original, parameters that a backward does not reach keep the gradient None, and
optimizers skip them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dacergnn.runtime.transformed import is_transformed
from dacergnn.runtime.typed_rows import split_rows

_Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Results:
    """Describes the results of a program over several types, and which of them its parts lead to.

    Args:
        count: The number of results.
        leads_to: For each part, positions of results; none for one that the program does not use.
    """

    count: int
    leads_to: Sequence[Sequence[int]]


class Reached:
    """Tells from which results of one call the running backward comes."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._eager = not is_transformed() and not torch.compiler.is_compiling()
        self._gates = False
        self._reached: list[bool] = []
        self._again: list[bool] = []

    def gate(self, made: Tensor, parts: Sequence[int]) -> None:
        """Lets gradients pass to parts only where a result that they lead to is reached.

        Args:
            made: The tensor that `torch.stack` or `torch.cat` has made of the parts, in their order.
            parts: Positions of the parts.
        """
        if not self._eager or made.grad_fn is None:
            return
        leads_to = [self._results.leads_to[part] for part in parts]
        fewest = min(map(len, leads_to))
        if fewest < self._results.count:
            self._gates = True
            made.grad_fn.register_hook(partial(self._passed, leads_to, fewest == 0))

    def split(self, rows: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        """Returns the rows of each result, which users may write to."""
        results = split_rows(rows, sizes)
        self._again = [False] * len(results)
        if self._gates and results[0].grad_fn is not None:
            results[0].grad_fn.register_prehook(self._note)
        return results

    def _note(self, gradients: _Gradients) -> None:
        """Notes which results a backward comes from.

        After a backward that is differentiated again, later ones may come from its results through its gradients.
        """
        self._reached = [g is not None or again for g, again in zip(gradients, self._again, strict=True)]
        if torch.is_grad_enabled():
            self._again = self._reached

    def _passed(
        self, leads_to: Sequence[Sequence[int]], some_unused: bool, gradients: _Gradients, _: _Gradients
    ) -> _Gradients | None:
        """Returns the gradients that exist; None if they all do."""
        reached = self._reached
        if not some_unused and False not in reached:
            return None
        pairs = zip(gradients, leads_to, strict=True)
        return tuple([gradient if any(reached[i] for i in results) else None for gradient, results in pairs])


def leave_missing(results: Sequence[Tensor], leads_to: Callable[[], Sequence[Collection[int]]]) -> None:
    """Has backwards leave None the gradients of inputs that lead to none of the results from which they come.

    Args:
        results: The results of one step of autograd.
        leads_to: Returns the positions of results that each input of the step leads to.
    """
    step = results[0].grad_fn if len(results) > 1 else None
    if step is None or torch.compiler.is_compiling():
        return
    reached: list[bool] = []

    def note(gradients: _Gradients) -> None:
        reached[:] = [gradient is not None for gradient in gradients]

    def passed(gradients: _Gradients, _: _Gradients) -> _Gradients | None:
        if all(reached):
            return None
        pairs = zip(gradients, leads_to(), strict=True)
        return tuple([gradient if any(reached[i] for i in led) else None for gradient, led in pairs])

    step.register_prehook(note)
    step.register_hook(passed)
