"""The table of torch functions that have a form in programs.

A rule takes the call and torch's own arguments, and returns the expression of the result, or a tuple of them; it
raises Untranslatable where the program form has none. Shapes have been checked by torch before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
IN_PLACE: dict[Any, Any] = {}
"""Functions that write to their first argument -> the functions that return the same result instead."""
VIEWS: set[Any] = set()
"""Functions whose results share memory with their first argument."""
MASKS: set[Any] = set()
"""Functions whose results may be truth values, besides views."""


OWN: Any = torch._C._VariableFunctions  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
"""torch's own functions: torch_geometric puts others in the places of some of them."""


def _functions(name: str) -> list[Any]:
    owners = (torch, OWN, Tensor, F, torch.linalg)
    return list({id(f): f for o in owners if (f := getattr(o, name, None)) is not None}.values())


def rule(*names: str, view: bool = False, mask: bool = False) -> Callable[[Rule], Rule]:
    """Enters a rule for the functions of these names in torch, torch.Tensor, torch.nn.functional and torch.linalg.

    Args:
        view: The results share memory with the first argument.
        mask: The results may be truth values.
    """

    def register(entry: Rule) -> Rule:
        for name in names:
            for function in _functions(name):
                RULES[function] = entry
                if view:
                    VIEWS.add(function)
                if mask:
                    MASKS.add(function)
            for spelling in (f"{name}_", f"__i{name.strip('_')}__"):
                for function in _functions(spelling):
                    IN_PLACE[function] = getattr(Tensor, name, None) or getattr(F, name)
        return entry

    return register
