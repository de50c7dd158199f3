"""Finds what a user's function depends on besides its arguments, as far as its byte code tells."""

from __future__ import annotations

import builtins
import dis
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_COMPARISONS = ("IS_OP", "COMPARE_OP", "CONTAINS_OP")
_EMPTY = CellType()
_LIBRARIES = ("torch", "torch_geometric", "dgl", "dacergnn")
_PURE = frozenset((
    "abs", "all", "any", "bool", "bytes", "callable", "classmethod", "complex", "dict", "divmod", "enumerate",
    "filter", "float", "format", "frozenset", "getattr", "hasattr", "int", "isinstance", "issubclass", "iter", "len",
    "list", "map", "max", "min", "next", "object", "pow", "property", "range", "repr", "reversed", "round", "set",
    "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
))  # fmt: skip
BY_NAME = frozenset(("getattr", "hasattr", "attrgetter", "methodcaller", "format", "format_map"))
"""Functions that reach attributes whose names are not in the code."""
_SPECIAL = frozenset(("__init__", "__call__", "__class__", "__name__", "__getitem__", "__len__"))
_FRAMES = frozenset(("gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_globals", "f_locals", "f_builtins", "f_back"))
_ELSEWHERE = ("IMPORT_", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_BUILD_CLASS",
              "LOAD_CLASSDEREF", "LOAD_FROM_DICT", "LOAD_LOCALS", "MATCH_CLASS")  # fmt: skip
"""Operations on names outside of functions, or on attributes that are not among the names of the code."""
_MODULES = ("torch.functional", "torch.nn.functional", "torch._jit_internal", "torch_geometric.utils",
            "torch_geometric.nn", "torch_geometric._compile", "torch_geometric.index", "torch_geometric.typing",
            "dgl.function", "dgl.ops", "dgl.nn", "operator", "typing")  # fmt: skip
"""Modules whose functions depend on arguments and the state of torch only; random numbers are noticed elsewhere."""
_CLASSES = ("torch_geometric.typing", "dgl.heterograph", "typing", "collections", "numbers", "functools", "itertools")
_HOLDERS = ("math", "_operator", "torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft")
_TORCH: Any = torch._C._VariableFunctions  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
_GUARDED: tuple[Any, ...] = (torch.is_grad_enabled, torch.get_default_dtype, torch.is_tensor, torch.no_grad,
                             torch.enable_grad, torch.finfo, torch.iinfo)  # fmt: skip
"""Functions and classes of torch; the state that they read or set is compared at every call."""


@dataclass(frozen=True)
class Reads:
    """Describes what some code mentions, including the functions in it.

    Args:
        chains: Global names with the attributes that are asked of them, as ``("torch", "relu")``.
        names: All names, also of attributes.
        problem: An action that cannot be watched; None if there is none.
    """

    chains: tuple[tuple[str, ...], ...]
    names: frozenset[str]
    problem: str | None


@lru_cache(maxsize=4096)
def reads(code: CodeType) -> Reads:
    """Returns what a code object mentions."""
    chains: dict[tuple[str, ...], None] = {}
    names = set(code.co_names)
    odd = sorted(n for n in names if n in _FRAMES or (n[:2] == "__" == n[-2:] and n not in _SPECIAL))
    problem = f"{code.co_qualname} uses {odd[0]}" if odd else None
    chain: list[str] = []
    for step in dis.get_instructions(code):
        if step.opname.startswith(_ELSEWHERE):
            problem = problem or f"{code.co_qualname} imports, or defines names outside of itself ({step.opname})"
        elif chain and step.opname in ("STORE_ATTR", "DELETE_ATTR", "COPY"):
            problem = problem or f"{code.co_qualname} changes {'.'.join(chain)}"
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain.append(str(step.argval))
        elif step.opname != "EXTENDED_ARG":
            if chain:
                chains[tuple(chain)] = None
            chain = [str(step.argval)] if step.opname == "LOAD_GLOBAL" else []
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = reads(const)
            chains.update(dict.fromkeys(inner.chains))
            names |= inner.names
            problem = problem or inner.problem
    return Reads(tuple(chains), frozenset(names), problem)


def user_functions(module: nn.Module) -> list[FunctionType]:
    """Returns users' functions: methods in a tree of modules, functions in attributes, and what all of these name."""
    parts = [*module.modules()]
    classes = {cls for part in parts for cls in type(part).__mro__ if is_user(cls.__module__)}
    waiting: list[Any] = [value for holder in (*classes, *parts) for value in vars(holder).values()]
    found: dict[int, FunctionType] = {}
    while waiting:
        value = waiting.pop()
        value = value.__func__ if isinstance(value, MethodType | staticmethod | classmethod) else value
        if isinstance(value, FunctionType) and id(value) not in found and is_user(owner(value)):
            found[id(value)] = value
            waiting += named_by(value)
    return [*found.values()]


def named_by(function: FunctionType) -> list[Any]:
    """Returns the global objects that a function names, and what its cells hold."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    return [*[function.__globals__.get(name) for name in function.__code__.co_names], *cells]


@lru_cache(maxsize=4096)
def compares_types(code: CodeType) -> bool:
    """Returns whether code may compare ``type(x)`` with a class of tensors."""
    names = {"type", "Tensor"} <= {*code.co_names}
    compares = names and any(step.opname in _COMPARISONS for step in dis.get_instructions(code))
    return compares or any(map(compares_types, _inner(code)))


@lru_cache(maxsize=4096)
def asks_for_ids(code: CodeType) -> bool:
    """Returns whether code may call ``id``."""
    return "id" in code.co_names or any(map(asks_for_ids, _inner(code)))


@lru_cache(maxsize=4096)
def compares_identities(code: CodeType) -> bool:
    """Returns whether code compares objects by ``is``, other than with constants."""
    steps = [*dis.get_instructions(code)]
    compares = any(
        step.opname == "IS_OP" and before.opname != "LOAD_CONST" for before, step in itertools.pairwise(steps)
    )
    return compares or any(map(compares_identities, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


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


def mentioned(cls: type) -> set[str]:
    """Returns the names in all functions of a library's class; a library makes no instances of users' classes."""
    names: set[str] = set()
    for value in vars(cls).values():
        for part in (value, *[getattr(value, n, None) for n in ("fget", "fset", "__func__", "__wrapped__")]):
            if isinstance(part, FunctionType):
                names |= reads(part.__code__).names
    return names - BY_NAME - {"__init__"}


def known(value: Any) -> bool:
    """Returns whether a function or class of a library or Python depends only on state that is guarded elsewhere."""
    if any(value is g for g in _GUARDED):
        return True
    if isinstance(value, BuiltinFunctionType):
        holder: Any = value.__self__
        if holder is builtins:
            return value.__name__ in _PURE
        if holder is None:
            return getattr(_TORCH, value.__name__, None) is value
        return isinstance(holder, ModuleType) and holder.__name__ in _HOLDERS
    if isinstance(value, FunctionType):
        module = owner(value)
        return _within(module, _MODULES) and "sampl" not in module and "random" not in module
    if isinstance(value, type):
        if value.__module__ == "builtins":
            return value.__name__ in _PURE or issubclass(value, BaseException)
        about_tensors = issubclass(value, Tensor | nn.Module | torch.dtype | torch.Size | torch.device)
        return not is_user(value.__module__) and (about_tensors or _within(value.__module__, _CLASSES))
    return False


def _within(module: str, parents: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in parents)


def method_of_dgl(name: str) -> bool:
    """Returns whether DGL's graphs have a method of this name that samples or makes other graphs."""
    library: Any = sys.modules.get("dgl.heterograph")
    method: Callable[..., Any] | None = None if library is None else getattr(library.DGLGraph, name, None)
    module = str(getattr(method, "__module__", ""))
    return module.startswith("dgl.") and module != "dgl.heterograph"
