"""Recorded values against torch: what they compute through the interpreter, and what they leave to torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.symbolic import Trace
from dacergnn.frontends.symbolic.edges import EdgeSet, edge_index
from dacergnn.frontends.symbolic.names import Names
from dacergnn.graph import HeteroGraph

N, E, H, K = 7, 15, 2, 3
F64 = torch.float64
INDEX = torch.randint(0, N, (2, E), generator=torch.Generator().manual_seed(1))


class Interpreted:
    """Runs programs in the interpreter, and keeps their texts."""

    names = Names()
    """Nothing is a parameter."""
    tape = None
    """Nothing is repeated."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        return torch.float32, torch.float64

    def find_graph(self, edges: EdgeSet) -> HeteroGraph:
        index = edges.edge_index.flip(0) if edges.flipped else edges.edge_index
        return HeteroGraph.from_arrays(index, None, num_nodes=edges.sizes, bipartite=edges.bipartite)

    def run(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> list[Tensor]:
        assert isinstance(program.source, str)
        self.texts.append(program.source)
        function = ast.parse(program.source).body[0]
        assert isinstance(function, ast.FunctionDef)
        names = [a.arg for a in function.args.args[1:]]
        given = {n: a.detach().numpy() for n, a in zip(names, arrays, strict=True)}
        found = dacergnn.interpret(dacergnn.parse(program.source), graph, **given)
        results = program.source.strip().rsplit("return ", 1)[1].split(", ")
        return [torch.from_numpy(np.array(found[name])) for name in results]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape) + seed))


X, Y, A = draw(N, H, K), draw(N, H, K, seed=9), draw(E)
W, BIAS, HEADS, SCALAR = draw(4, K), draw(4), draw(1, H, K), draw(1)
NORM = nn.LayerNorm(K).double()


def along_edges(message: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """A layer that computes a value per edge of both end points and a value that edges have, and returns it."""
    return lambda x, y, a, index: message(x.index_select(0, index[0]), y[index[1]], a)


def compare(layer: Callable[..., Any], *args: Any) -> list[str]:
    """Check a layer against torch; the texts of its programs."""
    runtime = Interpreted()
    trace = Trace(runtime)
    expected = layer(*args, INDEX)
    found = trace.results(layer(*trace.wrap(args), edge_index(trace.edge_set(INDEX))))
    for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, expected)], strict=True):
        assert type(a) is Tensor
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    return runtime.texts


EDGEWISE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "arithmetic": lambda x, y, a: (x - 2 * y) / (y * y + 1.5) + 1 - x * 0.5 + (3 - x) / 2 + 1 / (x**2 + 1),
    "alpha": lambda x, y, a: torch.add(x, y, alpha=0.5) - torch.sub(x, y, alpha=2),
    "functions": lambda x, y, a: x.exp() + torch.tanh(y) + torch.sigmoid(x) + x.abs().sqrt() + (y * y + 1).log(),
    "mish": lambda x, y, a: F.mish(30 * x) + F.mish(-y, inplace=False) + F.tanhshrink(x),
    "activations": lambda x, y, a: F.relu(x) + F.leaky_relu(y, 0.2) + F.elu(x) + F.gelu(y) + F.silu(x) + F.softplus(y),
    "modules": lambda x, y, a: nn.Tanh()(x) + nn.Identity()(y),
    "clamp": lambda x, y, a: x.clamp(min=-0.5, max=0.5) + torch.clamp(y, min=0.1) + x.clamp_min(0),
    "powers": lambda x, y, a: x.pow(2) + x.square() + x.abs().pow(0.5) + (x.abs() + 1) ** -1 + (y * y + 1).rsqrt(),
    "edge values": lambda x, y, a: x * a.view(-1, 1, 1) + a.unsqueeze(-1).unsqueeze(-1),
    "scalar tensors": lambda x, y, a: x * SCALAR + torch.tensor(2.0) - y * torch.tensor(3),
    "parameters": lambda x, y, a: x * HEADS + HEADS,
    "last axis of a parameter": lambda x, y, a: x * HEADS[0, 0] + y,
    "values spread over heads": lambda x, y, a: x * y[:, :1],
    "linear": lambda x, y, a: F.linear(x, W, BIAS) + F.linear(y, W),
    "linear of rows": lambda x, y, a: F.linear(x[:, 0], W, BIAS),
    "matmul": lambda x, y, a: x @ W.t() + torch.matmul(y, W.t()),
    "one output": lambda x, y, a: F.linear(x[:, 0], W[:1], BIAS[:1]) * y[:, 0],
    "one input": lambda x, y, a: F.linear(a.view(-1, 1), W[:, :1], BIAS) * x[:, 0, :1],
    "a matrix per edge": lambda x, y, a: torch.matmul(x[:, :1], y.view(-1, K, H)).squeeze(1),
    "dot product": lambda x, y, a: (x * y).sum(-1) + (x * HEADS).sum(dim=-1),
    "sums": lambda x, y, a: x.sum(dim=(1, 2)) + y.sum(-1).sum(1) + x.mean(dim=-1).sum(-1),
    "kept axis": lambda x, y, a: x / (x.abs().sum(-1, keepdim=True) + 1),
    "first axis": lambda x, y, a: x.sum(1) + y.mean(dim=1),
    "layer norm": lambda x, y, a: F.layer_norm(x, (K,), HEADS[0, 0], HEADS[0, 1], 0.1) + NORM(y),
    "layer norm of rows": lambda x, y, a: F.layer_norm(x.flatten(1), (H * K,)),
    "layer norm of one number": lambda x, y, a: F.layer_norm(a.view(-1, 1), (1,), SCALAR, SCALAR + 1) * x[:, 0],
    "softmax of heads": lambda x, y, a: x.softmax(dim=-1) + F.softmax(100 * y, dim=2),
    "softmax of one": lambda x, y, a: x[..., :1].softmax(-1) * y + F.log_softmax(y[..., :1], -1),
    "reshapes": lambda x, y, a: x.view(-1, H * K).reshape(-1, K, H).flatten(1).view(E, H, K) + y,
    "squeezes": lambda x, y, a: x.unsqueeze(1).squeeze(1).unsqueeze(-1).squeeze(-1),
    "concatenation": lambda x, y, a: torch.cat([x, y, x], dim=-1),
    "concatenation with a column": lambda x, y, a: torch.cat([x.flatten(1), a.view(-1, 1)], dim=1),
    "concatenation of heads": lambda x, y, a: torch.cat([x, y], dim=1),
    "stack": lambda x, y, a: torch.stack([x, y], dim=1) * torch.stack([a, a], dim=-1).view(-1, 2, 1, 1),
    "parts": lambda x, y, a: torch.cat([*x.chunk(3, dim=-1), *y.split([1, 2], -1)][::-1], -1),
    "heads": lambda x, y, a: x[:, 0] * y[:, 1] + x.unbind(1)[1] + y.select(1, 0),
    "slices": lambda x, y, a: x[..., 1:] * y[:, :, 0:1] + x[:, 1:, :2],
    "new axes": lambda x, y, a: x[:, None, :, :] * y[:, None],
    "transposed ones": lambda x, y, a: x[:, :1].transpose(1, 2) * 1.0,
    "fillings": lambda x, y, a: x + torch.zeros_like(y) + y.new_ones(y.shape) + x.new_full((E, 1, 1), 2.5),
    "expanded": lambda x, y, a: a.view(-1, 1, 1).expand(-1, H, K) + x.sum(-1, keepdim=True).expand_as(y),
    "in place": lambda x, y, a: in_place(x * 1.0, y),
    "in place of torch.nn": lambda x, y, a: relu_in_place(x - y),
    "dropout at rest": lambda x, y, a: F.dropout(x, 0.5, training=False) + F.dropout(y, 0.0),
    "casts": lambda x, y, a: x.to(F64).double().contiguous().clone().type_as(y),
}  # fmt: skip


def in_place(x: Tensor, y: Tensor) -> Tensor:
    x += y
    x.mul_(2).sub_(1)
    x /= 3
    return x.relu_()


def relu_in_place(x: Tensor) -> Tensor:
    F.relu(x, inplace=True)
    return x


@pytest.mark.parametrize("name", EDGEWISE)
def test_functions_of_edges(name: str) -> None:
    assert len(compare(along_edges(EDGEWISE[name]), X, Y, A)) == 1


def attention(x: Tensor, index: Tensor) -> Tensor:
    utils = pytest.importorskip("torch_geometric.utils")
    score = (x * HEADS).sum(-1)
    weights = utils.softmax(score[index[0]] + score[index[1]], index[1], num_nodes=N)
    return utils.scatter(x[index[0]] * weights.unsqueeze(-1), index[1], 0, N)


def test_attention_reads_as_one_would_write_it() -> None:
    (text,) = compare(attention, X)
    assert text == (
        "def layer(g, v0: NS[2, 3], v1: ONE[2, 3]):\n"
        "    for n in g.nodes():\n"
        '        n["v2"] = dot_prd(n["v0"], v1)\n'
        "    for e in g.edges():\n"
        '        e["v3"] = e.src["v2"] + e.dst["v2"]\n'
        "    for n in g.dst_nodes():\n"
        "        for e in n.incoming_edges():\n"
        '            n["v4"] = max(n["v4"], e["v3"])\n'
        "    for e in g.edges():\n"
        '        e["v5"] = exp(e["v3"] - detach(e.dst["v4"]))\n'
        "    for n in g.dst_nodes():\n"
        "        for e in n.incoming_edges():\n"
        '            n["v6"] += e["v5"]\n'
        '            n["v7"] += e.src["v0"] * (e["v5"] / n["v6"])\n'
        "    return v7\n"
    )


@pytest.mark.parametrize("guard", [1e-16, 0.5])
def test_numbers_that_are_added_to_the_sums_of_a_softmax(guard: float) -> None:
    def layer(x: Tensor, index: Tensor) -> Tensor:
        score = x[index[0]]
        ends = index[1].view(-1, 1, 1).expand_as(score)
        largest = torch.zeros_like(x).scatter_reduce(0, ends, score, "amax", include_self=False)
        weights = (score - largest[index[1]]).exp()
        return weights / (torch.zeros_like(x).index_add(0, index[1], weights) + guard)[index[1]]

    compare(layer, X)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("end", [0, 1])
def test_reductions_at_both_ends(reduce: str, end: int) -> None:
    utils = pytest.importorskip("torch_geometric.utils")
    compare(lambda x, a, i: utils.scatter(x[i[1 - end]] * a.view(-1, 1, 1), i[end], 0, N, reduce), X, A)


def test_several_hops_and_results() -> None:
    def layer(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.zeros_like(x).index_add(0, index[1], x[index[0]])
        z = torch.zeros_like(x).index_add_(0, index[1], y[index[0]] - y[index[1]])
        return z + x, y, x[index[0]]

    assert len(compare(layer, X)) == 1


def test_bipartite() -> None:
    index = torch.stack([torch.randint(0, 4, (E,)), INDEX[1]])

    def layer(x: Tensor, y: Tensor, ends: Tensor) -> Tensor:
        return torch.zeros_like(y).index_add(0, ends[1], x[ends[0]] * y[ends[1]]) + y

    trace = Trace(Interpreted())
    x = draw(4, H, K)
    found = trace.results(layer(*trace.wrap((x, Y)), edge_index(trace.edge_set(index))))
    torch.testing.assert_close(found, layer(x, Y, index))


def test_functions_of_nodes_without_a_form_run_in_torch() -> None:
    def layer(x: Tensor, index: Tensor) -> Tensor:
        x = torch.sort(x.flatten(1), dim=1).values  # an argument
        y = torch.zeros_like(x).index_add(0, index[1], x[index[0]])
        y = y.cumsum(-1)  # something computed
        return torch.zeros_like(x).index_add(0, index[1], y[index[0]])

    assert len(compare(layer, X)) == 2


def test_numbers_of_nodes_may_be_asked_for() -> None:
    compare(lambda x, i: x[i[0]] * 2 if float(x.sum()) > -1e9 else x[i[1]], X)


def test_different_edges_are_different_programs() -> None:
    other = INDEX.flip(1)[:, :9].contiguous()
    runtime = Interpreted()
    trace = Trace(runtime)

    def layer(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        y = torch.zeros_like(x).index_add(0, first[1], x[first[0]])
        return torch.zeros_like(x).index_add(0, second[1], y[second[0]]) + y

    found = layer(trace.value(X), edge_index(trace.edge_set(INDEX)), edge_index(trace.edge_set(other)))
    torch.testing.assert_close(trace.results(found), layer(X, INDEX, other))
    assert len(runtime.texts) == 2


def test_dropout_draws_what_torch_draws() -> None:
    def layer(x: Tensor, index: Tensor) -> Tensor:
        torch.manual_seed(3)
        return F.dropout(x[index[0]], 0.4)

    compare(layer, X)


def test_no_grad_detaches() -> None:
    def layer(x: Tensor, index: Tensor) -> Tensor:
        with torch.no_grad():
            weight = x[index[0]].exp()
        return weight * x[index[1]]

    (text,) = compare(layer, X)
    assert 'detach(exp(detach(e.src["v0"]))) * e.dst["v0"]' in text


def test_no_grad_around_a_reduction() -> None:
    utils = pytest.importorskip("torch_geometric.utils")

    def layer(x: Tensor, index: Tensor) -> Tensor:
        with torch.no_grad():
            weight = utils.softmax(x[index[0]], index[1], num_nodes=N)
        return weight * x[index[0]]

    assert len(compare(layer, X)) == 1


def test_no_grad_holds_for_what_torch_computes() -> None:
    x = X.clone().requires_grad_()
    trace = Trace(Interpreted())
    with torch.no_grad():
        found = trace.value(x) * 2
    assert not trace.results(found).requires_grad
    assert trace.results(trace.value(x) * 2).requires_grad


def test_equal_layers_are_one_program() -> None:
    assert compare(attention, X) == compare(attention, X * 2)


def recorded() -> tuple[Tensor, Tensor, Any]:
    trace = Trace(Interpreted())
    return trace.wrap(X), edge_index(trace.edge_set(INDEX)), trace


def test_errors_are_those_of_torch() -> None:
    x, index, _ = recorded()
    with pytest.raises(RuntimeError, match=r"^shape '\[-1, 4\]' is invalid for input of size 90$"):
        x[index[0]].view(-1, 4)


WITHOUT_FORM: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sort": lambda x, i: torch.sort(x[i[0]], dim=1).values,
    "method": lambda x, i: x[i[0]].cumsum(1),
    "truth": lambda x, i: x[i[0]] * (2 if bool(x[i[0]].sum() > 0) else 3),
    "item": lambda x, i: x[i[0]] * x[i[0]].tolist()[3][1][2],
    "edges as nodes": lambda x, i: x[i[0]][i[1]],
    "a factor": lambda x, i: torch.zeros_like(x).index_add(0, i[1], x[i[0]], alpha=2.0),
    "sum over rows": lambda x, i: F.linear(x[i[0]].sum((1, 2)), draw(2, E)),
}


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_functions_of_edges_without_a_form_run_in_torch(name: str) -> None:
    assert compare(WITHOUT_FORM[name], X)


REFUSED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "argument": lambda x, i: x.mul_(2),
    "shared memory": lambda x, i: keep(x[i[0]] * 1),
    "the same memory": lambda x, i: same(x[i[0]]),
}


def same(x: Tensor) -> tuple[Tensor, Tensor]:
    other = x.contiguous().detach()
    other += 1
    return x, other


def keep(x: Tensor) -> tuple[Tensor, Tensor]:
    view = x.view(-1, H * K)
    x += 1
    return view, x


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    x, index, _ = recorded()
    with pytest.raises(UnsupportedCallError) as found:
        REFUSED[name](x, index)
    place = r"\(test_symbolic_values\.py, line \d+, in (keep|same|<lambda>)\)"
    assert re.fullmatch(rf"torch\.Tensor\.(mul|add)_ writes to a tensor that is in use {place}\.", str(found.value))


def test_tensors_that_change_later_are_refused() -> None:
    trace = Trace(Interpreted())
    x = X.clone()
    found = trace.value(x)[edge_index(trace.edge_set(INDEX))[0]]
    x.add_(1)
    with pytest.raises(UnsupportedCallError, match=r"^a tensor is written to in place after it has been used\.$"):
        trace.results(found)


def test_nodes_and_edges_meet_in_no_program() -> None:
    runtime = Interpreted()
    trace = Trace(runtime)
    index = torch.randint(0, E, (2, E))  # as many nodes as edges
    x = draw(E, K)
    v, ends = trace.value(x), edge_index(trace.edge_set(index))
    torch.testing.assert_close(trace.results(v[ends[0]] + v), x[index[0]] + x)
    assert not runtime.texts
