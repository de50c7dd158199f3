"""Forwards that no program expresses run as they are, with one warning that names the construct and its line."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
from dacergnn.modules.graph_forward import compile_forward, compiled_forwards  # noqa: E402
from tests.frontends.dgl_forward import NODES, hetero_graph, small_graph  # noqa: E402

fn = dgl.function
Forward = Callable[[Any, Tensor], Tensor]
FILE = "test_dgl_forward_fallbacks.py"


def branching(g: Any, x: Tensor) -> Tensor:
    def message(edges: Any) -> dict[str, Tensor]:
        m = edges.src["h"] - edges.dst["h"]
        return {"m": m if m.sum() > 0 else -m}  # here

    g.ndata["h"] = x
    g.update_all(message, fn.sum("m", "out"))
    return g.ndata["out"]


def sorting(g: Any, x: Tensor) -> Tensor:
    def reduce(nodes: Any) -> dict[str, Tensor]:
        return {"out": nodes.mailbox["m"].sort(1)[0].sum(1)}  # here

    g.ndata["h"] = x
    g.update_all(fn.copy_u("h", "m"), reduce)
    return g.ndata["out"]


def counting(g: Any, x: Tensor) -> Tensor:
    def reduce(nodes: Any) -> dict[str, Tensor]:
        return {"out": nodes.mailbox["m"].sum(1) / nodes.mailbox["m"].shape[1]}  # here

    g.ndata["h"] = x
    g.update_all(fn.copy_u("h", "m"), reduce)
    return g.ndata["out"]


def adding_edges(g: Any, x: Tensor) -> Tensor:
    g = g.clone()  # here
    g.add_edges(0, 1)
    return dgl.ops.copy_u_sum(g, x)


def looping(g: Any, x: Tensor) -> Tensor:
    g = dgl.add_self_loop(g)  # here
    return dgl.ops.copy_u_sum(g, x)


def some_edges(g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = x
    g.apply_edges(lambda edges: {"m": edges.src["h"] * 2}, torch.tensor([0, 1]))  # here
    return g.edata["m"].sum(0)


def positions(g: Any, x: Tensor) -> Tensor:
    def reduce(nodes: Any) -> dict[str, Tensor]:
        values, indices = nodes.mailbox["m"].max(1)
        return {"out": values + indices.float()}  # here

    g.ndata["h"] = x
    g.update_all(fn.copy_u("h", "m"), reduce)
    return g.ndata["out"]


NOTHING = (
    "nothing to compile: no rows are gathered or reduced by the ends of edges in what torch captures of it; "
    "`torch._dynamo.explain` tells what that is"
)
CASES: list[tuple[Forward, str]] = [
    (branching, NOTHING),
    (sorting, "sort of nodes.mailbox cannot be captured ({line}, in reduce)."),
    (counting, "shape of nodes.mailbox cannot be captured ({line}, in reduce)."),
    (adding_edges, "clone of a graph cannot be captured ({line}, in adding_edges)."),
    (looping, "clone of a graph cannot be captured ({line}, in looping)."),
    (some_edges, "a function over some nodes or edges cannot be captured ({line}, in some_edges)."),
    (positions, "max of nodes.mailbox with positions cannot be captured ({line}, in reduce)."),
]


class Layer(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            return self.function(g, x)


@pytest.mark.parametrize(("forward", "reason"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_falls_back(forward: Forward, reason: str) -> None:
    g, x = small_graph(), torch.randn(NODES, 3)
    expected = Layer(forward)(g, x)
    layer = compile_forward(Layer(forward))
    with pytest.warns(UserWarning, match="runs uncompiled") as caught:
        torch.testing.assert_close(layer(g, x), expected)
    message = "Layer runs uncompiled: " + reason.format(line=f"{FILE}, line {_line(forward)}")
    assert [str(w.message) for w in caught] == [message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        torch.testing.assert_close(layer(g, x), expected)
    assert "Layer" not in str(g.ndata)
    assert not g.ndata
    (found,) = compiled_forwards(layer)
    assert found.core.refusal == message.removeprefix("Layer runs uncompiled: ")


def _line(function: Callable[..., Any]) -> int:
    """The line of a function that is marked."""
    import inspect

    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, text in enumerate(lines) if "# here" in text)


def test_reducers_of_recurrent_layers() -> None:
    g, x = small_graph(), torch.randn(NODES, 3)
    layer = dgl.nn.SAGEConv(3, 2, "lstm")
    expected = copy.deepcopy(layer)(g, x)
    compile_forward(layer)
    with pytest.warns(UserWarning, match=r"SAGEConv runs uncompiled: shape of nodes.mailbox cannot be captured"):
        torch.testing.assert_close(layer(g, x), expected)


def test_other_releases_of_dgl_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def summing(g: Any, x: Tensor) -> Tensor:
        g.ndata["h"] = x
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
        return g.ndata["out"]

    monkeypatch.setattr(dgl, "__version__", "2.1.0")
    g, x = small_graph(), torch.randn(NODES, 3)
    layer = compile_forward(Layer(summing))
    with pytest.warns(
        UserWarning, match=r"Layer runs uncompiled: DGL 2\.1\.0 cannot be captured; install DGL 1\.1\.3\."
    ):
        torch.testing.assert_close(layer(g, x), Layer(summing)(g, x))


def test_silent_fallback() -> None:
    layer = compile_forward(Layer(sorting), on_unsupported="ignore")
    layer(small_graph(), torch.randn(NODES, 3))
    assert compiled_forwards(layer)[0].core.refusal is not None


def test_random_numbers_are_drawn_once() -> None:
    class Dropping(nn.Module):
        def forward(self, g: Any, x: Tensor) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = torch.dropout(x, 0.5, self.training)
                g.apply_edges(fn.u_add_v("h", "h", "m"))
                return g.edata["m"].cumsum(1)

    g, x = small_graph(), torch.randn(NODES, 3)
    torch.manual_seed(3)
    expected = Dropping()(g, x)
    torch.manual_seed(3)
    torch.testing.assert_close(compile_forward(Dropping(), on_unsupported="ignore")(g, x), expected)


def test_softmax_across_relations() -> None:
    class Across(nn.Module):
        def forward(self, g: Any, x: dict[str, Tensor]) -> Tensor:
            with g.local_scope():
                for relation in g.canonical_etypes:
                    g.nodes[relation[0]].data["h"] = x[relation[0]]
                    g.apply_edges(fn.copy_u("h", "s"), etype=relation)
                return dgl.ops.edge_softmax(g, g.edata["s"])["paper", "cites", "paper"]

    g, x = hetero_graph(), {t: torch.randn(n, 2) for t, n in {"paper": 7, "author": 4, "topic": 3}.items()}
    torch.testing.assert_close(compile_forward(Across(), on_unsupported="error")(g, x), Across()(g, x))


class Sampling(nn.Module):
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.edata["p"] = torch.arange(1.0, g.num_edges() + 1)
            g.ndata["h"] = x
            g.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "out"))
            chosen = g.sample_neighbors(g.nodes(), -1, prob="p")
            return g.ndata["out"] * chosen.num_edges()


def test_dgl_samples_by_the_numbers_of_the_forward() -> None:
    """Nothing is left of the call that could not be captured."""
    g, x, plain = small_graph(), torch.randn(NODES, 3), Sampling()
    with pytest.warns(UserWarning, match="sample_neighbors of a graph cannot be captured"):
        torch.testing.assert_close(compile_forward(copy.deepcopy(plain))(g, x), plain(g, x))
    assert not g.ndata
    assert not g.edata
