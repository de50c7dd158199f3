"""A new operator is one record: a copy of the package that has one more uses it everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dacergnn

RECORD = """
OPERATORS["softsign"] = _unary(
    lambda x: x / (1 + np.abs(x)),
    "({0} / (Value(1) + std::abs({0})))",
    lambda x, y: op("div", 1.0, op("mul", op("add", 1.0, op("abs", x)), op("add", 1.0, op("abs", x)))),
    "({0} / (1 + abs({0})))",
    cost="divide",
    rising=True,
    zero_at_zero=True,
    torch=InTorch(("softsign",), module="Softsign"),
)
"""
SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn
import dgl
from dgl.nn import GraphConv
from torch_geometric.nn import EdgeConv, MessagePassing

import dacergnn
from dacergnn import Config

assert dacergnn.__file__.startswith(sys.argv[1]), dacergnn.__file__
torch.manual_seed(0)
x = torch.randn(9, 4, dtype=torch.float64)
edges = torch.randint(9, (2, 30))


def check(name, original, compiled, *args):
    both = [[t.clone().requires_grad_(t.is_floating_point()) for t in args] for _ in range(2)]
    results = [f(*own) for f, own in zip((original, compiled), both)]
    torch.testing.assert_close(*results)
    parameters = [[own[0], *getattr(f, "parameters", list)()] for f, own in zip((original, compiled), both)]
    gradients = [torch.autograd.grad(r.square().sum(), p) for r, p in zip(results, parameters)]
    torch.testing.assert_close(*gradients)
    print("used:", name)


def program(g, x: "NS[4]"):
    for n in g.nodes():
        n["h"] = sum(softsign(e.src.x) for e in n.incoming_edges())
    return h


def in_torch(x):
    return torch.zeros_like(x).index_add(0, edges[1], F.softsign(x)[edges[0]])


graph = dacergnn.HeteroGraph.from_arrays(edges, None, num_nodes=9)
for implementation in ("cpu", "pure"):
    function = dacergnn.compile(program, config=Config(implementation=implementation))
    check(f"program, {implementation}", in_torch, lambda x: function(graph, x), x)


class Traced(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return F.softsign(x_i - x_j)


def compiled(layer):
    return dacergnn.optimize(layer.double(), on_unsupported="error")


def copy(layer, other):
    other.load_state_dict(layer.state_dict())
    return layer, compiled(other)


check("traced layer", *copy(Traced().double(), Traced()), x, edges)
make = lambda: EdgeConv(nn.Sequential(nn.Linear(8, 4), nn.Softsign(), nn.Linear(4, 4)))
check("network of EdgeConv", *copy(make().double(), make()), x, edges)
make = lambda: GraphConv(4, 4, activation=F.softsign)
layer, other = copy(make().double(), make())
g = dgl.add_self_loop(dgl.graph((edges[0], edges[1]), num_nodes=9))
check("activation of a layer", lambda x: layer(g, x), lambda x: other(g, x), x)
print("listing:", *[file.read_text() for file in other.save_sdfg(sys.argv[1] + "/sdfgs")])
"""


def test_a_new_operator_is_a_record(tmp_path: Path) -> None:
    package = tmp_path / "dacergnn"
    shutil.copytree(Path(dacergnn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = package / "library_nodes" / "operators.py"
    table.write_text(table.read_text() + RECORD)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-P", "-W", "ignore", str(script), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    for place in ("program, cpu", "program, pure", "traced layer", "network of EdgeConv", "activation of a layer"):
        assert f"used: {place}" in run.stdout
    assert "softsign" in run.stdout.partition("listing:")[2], "the program of the layer computes it"
