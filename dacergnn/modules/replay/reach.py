"""Finds everything that the result of a forward may depend on besides its arguments."""

from __future__ import annotations

import builtins
import types
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.modules.replay.user_code import BY_NAME, is_user, known, mentioned, method_of_dgl, owner, reads

FORWARDS = "_compiled_forwards"
"""Attribute of modules that holds compiled forwards."""
ABSENT = object()
_CONSTANT = frozenset((
    type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented), torch.Size, torch.dtype,
    torch.device, torch.layout, torch.memory_format, types.GenericAlias, types.UnionType,
))  # fmt: skip
_OPEN = ("dgl.heterograph.DGLGraph", "dgl.frame.Frame", "dgl.frame.Column")
"""Classes of objects whose whole state is in their attributes."""
_CLOSED = ("dgl.heterograph_index.HeteroGraphIndex", "torch_geometric.inspector.Inspector", "dacergnn.config.Config",
           "torch.utils.hooks.RemovableHandle", "torch.autograd.grad_mode.no_grad",
           "torch.autograd.grad_mode.enable_grad")  # fmt: skip
"""Classes of objects that never change."""
_WRAPPERS = ("torch.utils._contextlib", "dacergnn.modules.graph_forward", "contextlib")
"""Modules whose decorators return functions that add nothing to the functions that they hold."""
_AROUND = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Hooks that run before and after the forward of a module that is called."""
_NEVER = (FORWARDS, "_dacergnn_refused", "_dacergnn_apart", "_state_dict_hooks", "_state_dict_pre_hooks",
          "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")  # fmt: skip
GLOBAL_HOOKS = [v for n, v in vars(nn.modules.module).items() if n.startswith("_global_") and isinstance(v, dict)]


class Unwatchable(Exception):
    """Signals that something might change, or have an effect, unnoticed."""


class Reach:
    """Collects attributes of modules and graphs, and objects that users' code names, by how they are compared.

    Args:
        module: The module of the forward.
        names: Attributes that the code is known to mention; only these matter in users' classes.
    """

    def __init__(self, module: nn.Module, names: frozenset[str]) -> None:
        self.mentioned = set(names)
        """These names, and further ones that the code mentions."""
        self.tables: list[Any] = [*GLOBAL_HOOKS]
        """Dictionaries; keys and values stay the same objects."""
        self.sequences: list[Any] = []
        """Lists and sets; items stay the same objects."""
        self.tensors: list[Tensor] = []
        self.modules: list[nn.Module] = []
        self.kinds: list[type] = []
        """Classes of objects, with their bases."""
        self.functions: list[types.FunctionType] = []
        self.cells: list[types.CellType] = []
        self.places: dict[tuple[int, str], tuple[Mapping[str, Any], str]] = {}
        """Global names, and attributes of modules of Python."""
        self._names = names
        self._all = not BY_NAME.isdisjoint(names)
        self._top = module
        self._classes = {c for m in module.modules() for c in type(m).__mro__}
        self._seen: dict[int, Any] = {}
        self._done: set[type] = set()
        self.add(module, type(module).__name__)

    def add(self, value: Any, where: str) -> None:
        """Notes a value and everything that can be reached from it; ``where`` names it.

        Raises:
            Unwatchable: Some of it has no state that can be compared, or does more than compute.
        """
        kind: Any = type(value)
        if kind in _CONSTANT or kind.__module__ == "typing" or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind in (tuple, frozenset) or (issubclass(kind, tuple) and not is_user(kind.__module__)):
            self._parts(value, where)
        elif kind in (list, set):
            self.sequences.append(value)
            self._parts(value, where)
        elif kind in (dict, OrderedDict):
            self._table(value, where)
        elif kind in (Tensor, nn.Parameter):
            self._tensor(value, where)
        elif isinstance(value, nn.Module):
            self._module(value, where)
        elif kind is types.FunctionType:
            self._function(value, where)
        elif kind is types.MethodType:
            self._parts((value.__func__, value.__self__), where)
        elif kind in (property, staticmethod, classmethod, partial, cached_property):
            inner = [getattr(value, n, None) for n in ("fget", "fset", "__func__", "func", "args", "keywords")]
            self._parts(inner, where)
        elif isinstance(value, type):
            self._named_class(value, where)
        elif name in _OPEN or any(f"{c.__module__}.{c.__qualname__}" == _OPEN[0] for c in kind.__mro__):
            self.kinds.append(kind)
            self._table(vars(value), where)
        elif name not in _CLOSED and not known(value):
            called = isinstance(value, types.BuiltinFunctionType)
            raise Unwatchable(f"it calls {where}" if called else f"{where} is a {kind.__name__}, which may change")

    def _parts(self, values: Iterable[Any], where: str) -> None:
        for value in list(values):
            self.add(value, where)

    def _table(self, table: dict[Any, Any], where: str) -> None:
        self.tables.append(table)
        for key, value in list(table.items()):
            if type(key) not in _CONSTANT and type(key) is not tuple:
                raise Unwatchable(f"{where} has a {type(key).__name__} as a key")
            self.add(value, f"{where}.{key}")

    def _tensor(self, value: Tensor, where: str) -> None:
        if value.layout is not torch.strided or value.is_inference():
            raise Unwatchable(f"{where} is a sparse tensor, or one of inference mode")
        self.tensors.append(value)
        self._table(vars(value), where)

    def _mentions(self, name: str) -> bool:
        return name in self._names or self._all

    def _module(self, module: nn.Module, where: str) -> None:
        kind = type(module)
        if kind.__module__.startswith("dacergnn."):
            raise Unwatchable(f"{where} is compiled itself")
        self.modules.append(module)
        self.kinds.append(kind)
        for cls in kind.__mro__[:-1]:
            self._class(cls)
        table = vars(module)
        if module is not self._top and (table["_backward_hooks"] or table["_backward_pre_hooks"]):
            raise Unwatchable(f"{where} has backward hooks")
        self.tables.append(table)
        for name, value in list(table.items()):
            around = module is self._top and name in _AROUND
            if name not in _NEVER and not around and self._mentions(name):
                self.add(value, f"{where}.{name}")

    def _class(self, cls: type) -> None:
        if cls in self._done:
            return
        self._done.add(cls)
        self.tables.append(cls.__dict__)
        if not is_user(cls.__module__):
            self.mentioned |= mentioned(cls)
            patches = [v for v in vars(cls).values() if type(v) is types.FunctionType and is_user(owner(v))]
            self._parts(patches, cls.__qualname__)
            return
        if vars(cls).get("__slots__") or is_user(type(cls).__module__):
            raise Unwatchable(f"{cls.__qualname__} has slots, or a class of its own")
        inherited = {n for c in cls.__mro__ if not is_user(c.__module__) for n in vars(c)}
        for name, value in list(vars(cls).items()):
            special = name[:2] == "__" == name[-2:]
            reached = self._mentions(name) or (name in inherited and not special)
            if reached if not special or name == "__init__" else isinstance(value, types.FunctionType):
                self.add(value, f"{cls.__qualname__}.{name}")

    def _named_class(self, cls: type, where: str) -> None:
        if cls in self._classes and is_user(cls.__module__):
            self._class(cls)
            self.add(vars(cls).get("__init__"), where)
        elif not known(cls):
            raise Unwatchable(f"it uses the class {where}")

    def _function(self, f: types.FunctionType, where: str) -> None:
        if not is_user(owner(f)):
            if owner(f) in _WRAPPERS:
                inner = [c.cell_contents for c in f.__closure__ or ()]
                self._parts([v for v in inner if not isinstance(v, type)], where)
            elif not known(f) and not self._owned(f):
                raise Unwatchable(f"it calls {where}")
            self.mentioned |= reads(f.__code__).names - BY_NAME - {"__init__"}
            return
        mentions = reads(f.__code__)
        odd = [n for n in sorted(mentions.names) if method_of_dgl(n)]
        if mentions.problem or odd:
            raise Unwatchable(mentions.problem or f"{where} uses {odd[0]} of a graph")
        self.mentioned |= mentions.names
        self.functions.append(f)
        self._table(vars(f), where)
        self._parts((f.__defaults__, f.__kwdefaults__), where)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self.cells.append(cell)
            try:
                content = cell.cell_contents
            except ValueError:
                raise Unwatchable(f"{name} in {where} has no value yet") from None
            if name != "__class__":
                self.add(content, name)
        for path in mentions.chains:
            self._resolve(f.__globals__, path)

    def _owned(self, f: types.FunctionType) -> bool:
        """Returns whether a function is a method of a class of the tree."""
        return any(f is v for c in self._classes for v in vars(c).values())

    def _resolve(self, table: Mapping[str, Any], path: Sequence[str]) -> None:
        value = self._place(table, path[0])
        if value is ABSENT:
            value = self._place(vars(builtins), path[0])
        where = path[0]
        for name in path[1:]:
            if not isinstance(value, types.ModuleType):
                break
            value, where = self._place(vars(value), name), f"{where}.{name}"
        if value is ABSENT or isinstance(value, types.ModuleType):
            raise Unwatchable(f"it uses {where}, which is {'a module' if value is not ABSENT else 'unknown'}")
        self.add(value, where)

    def _place(self, table: Mapping[str, Any], name: str) -> Any:
        self.places[id(table), name] = (table, name)
        return table.get(name, ABSENT)
