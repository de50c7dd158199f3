"""Whole models of the examples, of these pages and of the tests that train, with arguments to call them with."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from coverage_inputs import D, E, K, M, N, draw, edges, types, x
from pages import FOLDER
from torch import Tensor, nn
from torch_geometric import nn as pyg

from benchmarks.questions.accuracy import RECIPES
from examples import online_service, pyg_style
from tests.training.test_ever_new_batches import Plain, Typed

KINDS = {"author": 9, "paper": 14}
WRITES, BY = ("author", "writes", "paper"), ("paper", "by", "author")


@dataclass
class Model:
    """A model, where it comes from, and a call of it.

    Attributes:
        arrays: Further arguments of `dacergnn.inference`, by name; the others come first.
    """

    place: str
    module: nn.Module
    args: tuple[Any, ...]
    arrays: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def of_page(page: str, name: str, number: int = 0) -> Any:
    """Returns a class that is defined in the code of a page, the first of its name or a later one."""
    blocks = re.findall(r"```python\n(.*?)```", (FOLDER / page).read_text(), re.S)
    nodes = [node for block in blocks for node in ast.parse(block).body]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    constants = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Tuple)]
    found = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
    known = [n for n in constants if all(isinstance(c, ast.Constant | ast.Tuple) for c in n.value.elts)]
    names: dict[str, Any] = {}
    exec(compile(ast.Module([*imports, *known, found[number]], []), page, "exec"), names)
    return names[name]


def related(width: int, keys: tuple[Any, ...] = (WRITES, BY), sizes: dict[str, int] = KINDS) -> tuple[Any, ...]:
    """Returns features and edges by type."""
    ends = {key: torch.stack([types(E, sizes[key[0]]), types(E, sizes[key[2]])]) for key in keys}
    return {name: draw(size, width) for name, size in sizes.items()}, ends


def typed() -> tuple[Any, ...]:
    keys = (("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a"))
    return keys, related(8, keys, {"a": 9, "b": 14})


def models() -> dict[str, Model]:
    """Returns all models by name, made anew."""
    keys, arguments = typed()
    service = online_service
    sources = {kind for key in service.SOURCES for kind in (key[0], key[2])}
    served = related(service.WIDTH, tuple(service.SOURCES), dict.fromkeys(sorted(sources), 12))
    edge_type, values = types(E, 4), torch.rand(E)
    whole = of_page("howto/whole_models.md", "Net")
    return {
        "`RGCNConv` twice": Model(
            "quickstart.md", of_page("quickstart.md", "Net")(), (x(16), edges(), edge_type), {"edge_type": edge_type}
        ),
        "`GCNConv`, norm, residual": Model("howto/whole_models.md", whole(pyg.GCNConv), (x(16), edges())),
        "`SAGEConv`, norm, residual": Model("howto/whole_models.md", whole(pyg.SAGEConv), (x(16), edges())),
        "a mesh network": Model(
            "howto/whole_models.md", of_page("howto/whole_models.md", "Mesh")(), (x(16), draw(E, 16), edges())
        ),
        "`HeteroConv` of `SAGEConv`, head": Model("deployment.md", of_page("deployment.md", "Net")(), related(16)),
        "two `HeteroConv` of `SAGEConv`, head": Model("examples/online_service.py", service.Network(), served),
        "RGCN as a `MessagePassing`": Model(
            "examples/pyg_style.py",
            pyg_style.RGCN(K, M, 4),
            (x(), edges(), edge_type, values),
            {"edge_type": edge_type, "norm": values},
        ),
        "RGAT as a `MessagePassing`": Model(
            "examples/pyg_style.py",
            pyg_style.RGAT(K, M, 4, heads=2),
            (x(), edges(), edge_type),
            {"edge_type": edge_type},
        ),
        "HGT as a `MessagePassing`": Model(
            "examples/pyg_style.py",
            pyg_style.HGT(8, 3, 4, heads=2),
            (x(8), edges(), types(N, 3), edge_type),
            {"edge_type": edge_type},
        ),
        "GCN": Model("tests/training/test_citations.py", RECIPES["gcn"].make(K, M), (x(), edges())),
        "GAT": Model("tests/training/test_citations.py", RECIPES["gat"].make(K, M), (x(), edges())),
        "`SAGEConv` twice": Model(
            "tests/training/test_ever_new_batches.py", Plain(lambda: pyg.SAGEConv(8, 8)), (x(8), edges())
        ),
        "`HeteroConv` of `SAGEConv`, twice": Model(
            "tests/training/test_ever_new_batches.py",
            Typed(lambda: pyg.HeteroConv({key: pyg.SAGEConv((8, 8), 8) for key in keys})),
            arguments,
        ),
        "`GraphSAGE`, jumping knowledge": Model(
            "torch_geometric.nn", pyg.GraphSAGE(K, M, 2, jk="cat", norm="LayerNorm"), (x(), edges())
        ),
        "GIN": Model("torch_geometric.nn", pyg.GIN(K, M, 2), (x(), edges())),
        "PNA": Model(
            "torch_geometric.nn",
            pyg.PNA(K, M, 2, aggregators=["mean", "max"], scalers=["identity"], deg=types(D, 9)),
            (x(), edges()),
        ),
    }
