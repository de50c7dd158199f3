"""Writes host code that starts the kernels of an operator, by itself or together with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Launches:
    """Holds the host code of an operator: ``calls`` of `dacergnn::cuda` request launches one after the other.

    ``before`` declares the variables that calls need, by names that no other operator has.
    """

    before: str
    calls: Sequence[str]


def started(operators: Sequence[Launches]) -> str:
    """Returns C++ that starts operators that do not wait for each other."""
    before = "".join(o.before for o in operators)
    asked = ",\n".join(_asked(o.calls) for o in operators)
    return f"{{\n{before}dacergnn::cuda::start({asked});\n}}"


def _asked(calls: Sequence[str]) -> str:
    text = ", ".join(f"dacergnn::cuda::{call}" for call in calls)
    return text if len(calls) == 1 else f"dacergnn::cuda::in_order({text})"
