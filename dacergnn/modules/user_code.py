"""Finds the functions of users that a module may call, and what their byte code tells."""

from __future__ import annotations

import dis
import itertools
import sys
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from torch import nn

_EMPTY = CellType()
_LIBRARIES = ("torch", "torch_geometric", "dgl", "dacergnn")


def user_functions(module: nn.Module) -> list[FunctionType]:
    """Returns users' functions: methods in a tree of modules, functions in attributes, and what all of these name."""
    parts = [*module.modules()]
    classes = {cls for part in parts for cls in type(part).__mro__ if is_user(cls.__module__)}
    waiting: list[Any] = [value for holder in (*classes, *parts) for value in vars(holder).values()]
    found: dict[int, FunctionType] = {}
    while waiting:
        holder: Any = waiting.pop()
        value: Any = holder.__func__ if isinstance(holder, MethodType | staticmethod | classmethod) else holder
        if type(value) in (dict, list, tuple):
            held: Any = value.values() if type(value) is dict else value
            waiting += [v for v in held if isinstance(v, FunctionType)]
        elif isinstance(value, FunctionType) and id(value) not in found and is_user(owner(value)):
            found[id(value)] = value
            waiting += named_by(value)
    return [*found.values()]


def named_by(function: FunctionType) -> list[Any]:
    """Returns the global objects that a function names, and what its cells hold."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    return [*[function.__globals__.get(name) for name in function.__code__.co_names], *cells]


def looks_at_objects(code: CodeType) -> bool:
    """Returns whether code may tell a stand-in from what it stands for, by type or identity."""
    names, inner = {*code.co_names}, [const for const in code.co_consts if isinstance(const, CodeType)]
    steps = itertools.pairwise(dis.get_instructions(code))
    compares = any(step.opname == "IS_OP" and before.opname != "LOAD_CONST" for before, step in steps)
    asks = {"type", "Tensor"} <= names or not names.isdisjoint(("id", "EdgeIndex"))
    return asks or compares or any(map(looks_at_objects, inner))


def is_user(owner: str) -> bool:
    """Returns whether code of a module is a user's."""
    top = owner.partition(".")[0]
    return top not in _LIBRARIES and top not in sys.stdlib_module_names


def owner(function: FunctionType) -> str:
    """Returns the module whose names a function sees; PyG's module for code that PyG has written for a user's class."""
    module = str(function.__globals__.get("__name__"))
    if module.endswith(("_propagate", "_edge_updater")) and "CollectArgs" in function.__globals__:
        return "torch_geometric.nn"
    return module
