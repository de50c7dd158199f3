"""Runs the text of a program in torch, float64, statement by statement: the meaning of the form, told a second time.

Shares no code with the package: it walks Python's syntax tree of the text and looks rows up through `RawGraph`.
Since it runs any text, it checks an SDFG through its printed form too. Autograd goes through it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.support.random_graphs import RawGraph

Arrays = dict[tuple[str, str], Tensor]
ITERATORS = {
    "edges": "E", "nodes": "NS", "src_nodes": "NS", "dst_nodes": "ND", "src_pairs": "U", "dst_pairs": "V",
    "edge_types": "R", "node_types": "T", "once": "ONE", "typed_nodes": "RNS",
}  # fmt: skip
REACHED = {
    "src": "NS", "dst": "ND", "srcpair": "U", "dstpair": "V", "etype": "R", "srctype": "T", "dsttype": "T",
    "ntype": "T", "typedsrc": "RNS", "one": "ONE",
}  # fmt: skip
INNER = {("ND", "i"): "dst", ("NS", "i"): "dst", ("V", "i"): "dstpair", ("NS", "o"): "src", ("U", "o"): "srcpair"}
ENDS = {"src": "src", "dst": "dst", "src_pair": "srcpair", "dst_pair": "dstpair"}


def _softplus(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x, threshold=50)  # from where on it is x


RESULT_ORDER = ("ND", "NS", "E", "V", "U", "R", "T", "ONE", "RNS")
ELEMENTWISE = {
    "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "abs": torch.abs, "erf": torch.erf,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": torch.nn.functional.gelu,
    "expm1": torch.expm1, "log1p": torch.log1p, "silu": torch.nn.functional.silu, "softplus": _softplus,
    "detach": torch.detach, "max": torch.maximum, "min": torch.minimum, "sin": torch.sin, "cos": torch.cos,
    "round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
}  # fmt: skip
BINARY = {
    ast.Add: torch.add, ast.Sub: torch.sub, ast.Mult: torch.mul, ast.Div: torch.div, ast.Gt: torch.gt,
    ast.GtE: torch.ge, ast.Eq: torch.eq, ast.Lt: torch.lt, ast.LtE: torch.le,
}  # fmt: skip


def torch_evaluate(text: str, graph: RawGraph, inputs: Mapping[str, Tensor]) -> tuple[list[Tensor], Arrays]:
    """Results of the last function of ``text``, and all arrays by (row space, name)."""
    functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    main = next(reversed(functions.values()))
    return _Run(functions, graph).run(main, inputs)


@dataclass
class _Loop:
    space: str
    variables: dict[str, tuple[str, str]]  # name -> (path from the innermost row, row space)
    locals: dict[str, str] = field(default_factory=dict[str, str])  # name -> the loop variable it belongs to


class _Run:
    def __init__(self, functions: dict[str, ast.FunctionDef], graph: RawGraph) -> None:
        self.functions = functions
        self.maps, self.sizes = graph.maps()
        self.arrays: Arrays = {}

    def run(self, main: ast.FunctionDef, inputs: Mapping[str, Tensor]) -> tuple[list[Tensor], Arrays]:
        for argument in main.args.args[1:]:
            space = ast.unparse(argument.annotation or ast.Name("E")).split("[")[0]
            self.arrays[space, argument.arg] = inputs[argument.arg]
        self.body(main.body, {})
        returned = main.body[-1]
        assert isinstance(returned, ast.Return)
        names = ast.unparse(returned)[len("return ") :].strip("()").split(", ")
        results = [next(self.arrays[s, n] for s in RESULT_ORDER if (s, n) in self.arrays) for n in names]
        return results, self.arrays

    def body(self, body: list[ast.stmt], constants: dict[str, str]) -> None:
        for node in body:
            if isinstance(node, ast.For):
                self.loop(node, None, constants)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                function = self.functions[ast.unparse(node.value.func)]
                values = [ast.literal_eval(a) for a in node.value.args[1:]]
                self.body(function.body, dict(zip([a.arg for a in function.args.args[1:]], values, strict=True)))

    def loop(self, node: Any, outer: _Loop | None, constants: dict[str, str]) -> None:
        owner, method = ast.unparse(node.iter.func).split(".")
        variable = ast.unparse(node.target)
        if outer is None:
            space = ITERATORS[method]
            loop = _Loop(space, {variable: ("", space)})
        else:
            owner_space = outer.variables[owner][1]
            path = INNER[owner_space, method[0]]
            loop = _Loop("E", {variable: ("", "E"), owner: (path, owner_space)}, dict(outer.locals))
        for item in node.body:
            if isinstance(item, ast.For):
                self.loop(item, loop, constants)
            else:
                _Statement(self, loop, constants).run(item)

    def find(self, space: str, path: str, name: str) -> Tensor:
        """Rows of array ``name`` that ``path`` leads to, one for every row of ``space``."""
        reached = REACHED.get(path, space)
        array = self.arrays.get((reached, name))
        if array is None:  # destinations are the first of the sources
            assert reached == "ND", (space, path, name)
            array = self.arrays["NS", name]
        return array[self.maps[space, path]]


class _Statement:
    def __init__(self, run: _Run, loop: _Loop, constants: dict[str, str]) -> None:
        self.all, self.loop, self.constants = run, loop, constants
        self.rows = run.sizes[loop.space]

    def run(self, node: Any) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value: Any = node.value
        extremum = isinstance(value, ast.Call) and ast.unparse(value.args[0]) == ast.unparse(target)
        path, space, name = self.target(target, isinstance(node, ast.AugAssign) or extremum)
        previous = self.all.arrays.get((space, name))
        if previous is not None and previous.numel() and previous.max() <= -1e29:
            previous = None  # where a maximum starts from
        if path == "" and space == self.loop.space:
            result = self.value(value)
            if isinstance(node, ast.AugAssign) and (previous is not None or not isinstance(node.op, ast.Add)):
                result = self.binary(BINARY[type(node.op)], self.read(path, name), result)
        else:
            kind = "sum"
            if isinstance(node, ast.Assign) and path:  # target = max(target, value)
                assert ast.unparse(value.args[0]) == ast.unparse(target)
                kind, value = "a" + ast.unparse(value.func), value.args[1]
            result = self.reduce(self.value(value), path, space, kind)
            if previous is not None and (path or isinstance(node, ast.AugAssign)):
                combine = {"sum": torch.add, "amax": torch.maximum, "amin": torch.minimum}[kind]
                result = self.binary(combine, previous, result)
        self.all.arrays[space, name] = result

    def target(self, node: Any, reads_itself: bool) -> tuple[str, str, str]:
        """(path, row space, name) of what is assigned."""
        if isinstance(node, ast.Name):
            owner = next(v for v, (path, _) in self.loop.variables.items() if path == "")
            if reads_itself and node.id not in self.loop.locals:
                return "one", "ONE", node.id
            if reads_itself:
                return (*self.loop.variables[self.loop.locals[node.id]], node.id)
            self.loop.locals[node.id] = owner
            return "", self.loop.space, node.id
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr == "src":
            path = self.entity(base.value)
            if path is not None and REACHED.get(path, self.loop.space) == "ND":  # a destination among the sources
                return path, "NS", ast.literal_eval(node.slice)
        reference = self.reference(node)
        assert reference is not None
        path, name = reference
        if isinstance(base, ast.Name) and base.id in self.loop.variables:
            return path, self.loop.variables[base.id][1], name
        return path, REACHED[path], name

    def reduce(self, value: Tensor, path: str, space: str, kind: str) -> Tensor:
        index = self.all.maps[self.loop.space, path]
        result = value.new_zeros(self.all.sizes[space], *value.shape[1:])
        if kind == "sum":
            return result.index_add(0, index, value)
        if value.numel() == 0:
            return result
        index = index.reshape(-1, *[1] * (value.dim() - 1)).expand(value.shape)
        return result.scatter_reduce(0, index, value, kind, include_self=False)

    def entity(self, node: ast.expr) -> str | None:
        """Path of a loop variable, or of an end of one."""
        if isinstance(node, ast.Name):
            return self.loop.variables[node.id][0] if node.id in self.loop.variables else None
        if isinstance(node, ast.Attribute) and node.attr in ENDS and self.entity(node.value) is not None:
            return ENDS[node.attr]
        return None

    def reference(self, node: ast.expr) -> tuple[str, str] | None:
        """(path, name) of ``e["x"]``, ``e.src.x``, ``W[e.etype]``."""
        if isinstance(node, ast.Attribute) and self.entity(node.value) is not None and node.attr != "T":
            return self.entity(node.value) or "", node.attr
        if not isinstance(node, ast.Subscript):
            return None
        path = self.entity(node.value)
        if path is not None:
            name = node.slice.value if isinstance(node.slice, ast.Constant) else self.constants[ast.unparse(node.slice)]
            return path, str(name)
        if isinstance(node.slice, ast.Tuple):
            return "typedsrc", ast.unparse(node.value)
        assert isinstance(node.slice, ast.Attribute)
        end = self.entity(node.slice.value)
        types = {"": "ntype", "src": "srctype", "dst": "dsttype"}
        return "etype" if node.slice.attr == "etype" else types[str(end)], ast.unparse(node.value)

    def read(self, path: str, name: str) -> Tensor:
        return self.all.find(self.loop.space, path, name)

    def value(self, node: ast.expr) -> Tensor:
        """Value for all rows of the loop, shape (rows, *row shape)."""
        reference = self.reference(node)
        if reference is not None:
            return self.read(*reference)
        if isinstance(node, ast.Constant):
            return torch.full((self.rows,), float(str(node.value)), dtype=torch.float64)
        if isinstance(node, ast.Name):
            owner = self.loop.locals.get(node.id)
            return self.read(self.loop.variables[owner][0] if owner else "one", node.id)
        if isinstance(node, ast.Attribute) and node.attr == "T":
            return self.value(node.value).transpose(-1, -2)
        if isinstance(node, ast.UnaryOp):
            return -self.value(node.operand)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self.call("linear", [node.left, node.right])
        if isinstance(node, ast.BinOp):
            return self.binary(BINARY[type(node.op)], self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            kind = BINARY[type(node.ops[0])]
            return self.binary(kind, self.value(node.left), self.value(node.comparators[0])).double()
        assert isinstance(node, ast.Call), ast.dump(node)
        return self.call(ast.unparse(node.func), node.args)

    def call(self, name: str, args: list[ast.expr]) -> Tensor:
        x = self.value(args[0])
        if name == "linear":
            return torch.matmul(x.unsqueeze(-2), self.value(args[1])).squeeze(-2)
        if name == "outer_prod":
            return x.unsqueeze(-1) * self.value(args[1]).unsqueeze(-2)
        if name == "compose":
            b = self.value(args[1])
            if b.dim() == 3:
                return x @ b
            heads = x.reshape(*x.shape[:2], *b.shape[1:3])
            return torch.cat([heads[:, :, h] @ b[:, h] for h in range(b.shape[1])], dim=-1)
        if name == "inner":
            y = self.value(args[1])
            if len(args) == 2:
                return x.transpose(1, 2) @ y
            heads = int(ast.literal_eval(args[2]))
            pairs = zip(x.chunk(heads, dim=-1), y.chunk(heads, dim=-1), strict=True)
            return torch.stack([a.transpose(1, 2) @ b for a, b in pairs], dim=1)
        if name == "take_rows":
            return x[..., ast.literal_eval(args[1]) : ast.literal_eval(args[2]), :]
        if name == "pad_rows":
            return torch.nn.functional.pad(x, (0, 0, ast.literal_eval(args[1]), ast.literal_eval(args[2])))
        if name == "sum_heads":
            return x.sum(1)
        if name == "to_heads":
            return x.unsqueeze(1).expand(-1, int(ast.literal_eval(args[1])), *x.shape[1:])
        if name == "sum":
            return x.sum(-1)
        if name == "dot_prd":
            return self.binary(torch.mul, x, self.value(args[1])).sum(-1)
        if name == "concat":
            return torch.cat((x, self.value(args[1])), dim=-1)
        if name in ("reshape", "slice", "expand"):
            dims = [int(ast.literal_eval(a)) for a in args[1:]]
            if name == "reshape":
                return x.reshape(self.rows, *dims)
            if name == "slice":
                return x[..., dims[0] : dims[1]]
            return x.reshape(*x.shape, *[1] * len(dims)).expand(*x.shape, *dims)
        if name == "leakyrelu":
            slope = float(ast.literal_eval(args[1])) if len(args) > 1 else 0.01
            return torch.where(x > 0, x, x * slope)
        if name == "elu":
            alpha = float(ast.literal_eval(args[1])) if len(args) > 1 else 1.0
            return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0.0)))
        if name in ("clamp_min", "clamp_max", "pow"):
            return getattr(torch, name)(x, float(ast.literal_eval(args[1])))
        if name == "where":
            a, b = (self.value(arg) for arg in args[1:])
            rank = max(x.dim(), a.dim(), b.dim())
            condition, a, b = (t.reshape(*t.shape, *[1] * (rank - t.dim())) for t in (x, a, b))
            return torch.where(condition != 0, a, b)
        if len(args) == 2:
            return self.binary(ELEMENTWISE[name], x, self.value(args[1]))
        return ELEMENTWISE[name](x)

    def binary(self, function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
        """Operands aligned along leading axes."""
        rank = max(a.dim(), b.dim())
        a, b = (t.reshape(*t.shape, *[1] * (rank - t.dim())) for t in (a, b))
        return function(*torch.broadcast_tensors(a, b))
