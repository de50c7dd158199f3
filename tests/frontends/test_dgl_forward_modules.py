"""What a compiled forward leaves as it is: the module, the user's graph, other threads, errors of the user."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
import dacergnn  # noqa: E402
from dacergnn.config import Config  # noqa: E402
from dacergnn.errors import DacergnnError, UnsupportedCallError  # noqa: E402
from dacergnn.modules.graph_forward import compile_forward, compiled_forwards  # noqa: E402
from dacergnn.modules.graphs import GraphCache  # noqa: E402
from tests.frontends.dgl_forward import EDGES, NODES, small_graph  # noqa: E402

fn = dgl.function


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.kept: Tensor | None = None

    @compile_forward(on_unsupported="error")
    def forward(self, g: Any, x: Tensor) -> Tensor:
        """The sum over neighbours."""
        with g.local_scope():
            g.ndata["h"] = self.linear(x)
            g.edata["own"] = x.new_ones(g.num_edges())
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
            self.kept = g.ndata["h"]
            return g.ndata["h"] + g.ndata["bias"]


@compile_forward
class Storing(nn.Module):
    """No scope: what is stored stays."""

    def forward(self, g: Any, x: Tensor) -> Any:
        g.ndata["h"] = x
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "sum"))
        g.ndata.pop("bias")
        return g


def graph() -> Any:
    g = small_graph()
    g.edata["w"], g.ndata["bias"] = torch.rand(EDGES, 1), torch.rand(NODES, 4)
    return g


def encodings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    encode = GraphCache.encode

    def counted(self: GraphCache, *args: Any) -> Any:
        made.append(self)
        return encode(self, *args)

    monkeypatch.setattr(GraphCache, "encode", counted)
    return made


def test_module_stays_what_it_is() -> None:
    layer, g, x = Layer(), graph(), torch.randn(NODES, 3)
    called: list[str] = []
    hook = layer.register_forward_hook(lambda *_: called.append("hook"))
    out = layer(g, x)
    assert called == ["hook"]
    assert list(layer.state_dict()) == ["linear.weight", "linear.bias"]
    assert Layer.forward.__doc__ == "The sum over neighbours."
    assert type(layer.kept) is Tensor
    torch.testing.assert_close(layer.kept + g.ndata["bias"], out)
    hook.remove()
    layer.kept = None  # neither copied nor pickled, since it needs gradients
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert not compiled_forwards(other)
        with torch.no_grad():
            other.linear.weight.zero_()
        torch.testing.assert_close(layer(g, x), out)
        assert not torch.equal(other(g, x), out)
        layer.kept = None


def test_shallow_copies_run_their_own_parts() -> None:
    layer, g, x = Layer(), graph(), torch.randn(NODES, 3)
    layer(g, x)
    other = copy.copy(layer)
    other.__dict__["_modules"] = {"linear": nn.Linear(3, 4)}
    assert not torch.equal(other(g, x), layer(g, x))
    assert compiled_forwards(layer)[0].original is layer
    assert compiled_forwards(other)[0].original is other


def test_single_modules_are_copied_and_pickled() -> None:
    layer = compile_forward(dgl.nn.SAGEConv(3, 2, "mean"), on_unsupported="error")
    g, x = small_graph(), torch.randn(NODES, 3)
    out = layer(g, x)
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(g, x), out)
        (found,) = compiled_forwards(other)
        assert found.original is other
        assert isinstance(other, dgl.nn.SAGEConv)
    layer.forward = lambda *_: out
    with pytest.raises(DacergnnError) as error:
        compile_forward(layer)
    assert str(error.value) == "this SAGEConv has a forward of its own; decorate that of its class."


def test_scopes_leave_the_graph_alone() -> None:
    g = graph()
    held = {k: g.ndata[k] for k in g.ndata} | {k: g.edata[k] for k in g.edata}
    Layer()(g, torch.randn(NODES, 3))
    assert (set(g.ndata), set(g.edata)) == ({"bias"}, {"w"})
    assert all((g.ndata if k in g.ndata else g.edata)[k] is v for k, v in held.items())


def test_what_is_stored_in_the_graph_stays() -> None:
    g, x = graph(), torch.randn(NODES, 3)
    assert Storing()(g, x) is g
    assert set(g.ndata) == {"h", "sum"}
    assert g.ndata["h"] is x
    expected = torch.zeros(NODES, 3).index_add(0, g.edges()[1], x[g.edges()[0]])
    torch.testing.assert_close(g.ndata["sum"], expected)
    assert type(g.ndata["sum"]) is Tensor


def test_graphs_are_encoded_when_their_structure_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, layer, g, x = encodings(monkeypatch), Layer(), graph(), torch.randn(NODES, 3)
    layer(g, x)
    layer(g, x + 1)
    Layer()(g.local_var(), x)
    assert len(made) == 1
    g.remove_edges(torch.tensor([0]))
    g.add_edges(3, 1, {"w": torch.ones(1, 1)})
    assert g.num_edges() == EDGES
    out = layer(g, x)
    assert len(made) == 2
    with g.local_scope():
        g.ndata["h"] = layer.linear(x)
        g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
        torch.testing.assert_close(out, g.ndata["h"] + g.ndata["bias"])


def test_types_written_in_place_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, g, x = encodings(monkeypatch), small_graph(), torch.randn(NODES, 3)
    kind = torch.arange(EDGES) % 3
    layer = dgl.nn.RelGraphConv(3, 2, 3)
    plain = copy.deepcopy(layer)
    compile_forward(layer, on_unsupported="error")
    for _ in range(2):
        layer(g, x, kind)
    assert len(made) == 1
    kind[:9] = 2
    torch.testing.assert_close(layer(g, x, kind), plain(g, x, kind))
    assert len(made) == 2


def test_nested_forwards_are_one_program() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dgl.nn.GraphConv(3, 3, norm="none", allow_zero_in_degree=True), Layer()

        @compile_forward(on_unsupported="error")
        def forward(self, g: Any, x: Tensor) -> Tensor:
            return self.second(g, self.first(g, x))

    model, g, x = Two(), graph(), torch.randn(NODES, 3)
    out = model(g, x)
    assert not compiled_forwards(model.second)
    torch.testing.assert_close(out, model.second(g, model.first(g, x)))
    assert type(model.second.kept) is Tensor


def test_graph_held_by_the_module() -> None:
    class Holder(nn.Module):
        def __init__(self, g: Any) -> None:
            super().__init__()
            self.g = g

        @compile_forward(on_unsupported="error")
        def forward(self, x: Tensor) -> Tensor:
            self.g.ndata["h"] = x
            self.g.update_all(lambda edges: {"m": edges.src["h"]}, lambda nodes: {"h": nodes.mailbox["m"].sum(1)})
            return self.g.ndata.pop("h")

    g, x = small_graph(), torch.randn(NODES, 3)
    layer = Holder(g)
    torch.testing.assert_close(layer(x), dgl.ops.copy_u_sum(g, x))
    assert layer.g is g
    assert not g.ndata


def test_dgl_is_not_imported_before_a_graph_is_met() -> None:
    code = "import sys, dacergnn.modules.graph_forward; sys.exit('dgl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_graphs_are_copied_and_pickled_without_encodings() -> None:
    layer, g, x = Layer(), graph(), torch.randn(NODES, 3)
    out = layer(g, x)
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert not hasattr(other._graph, "_dacergnn_encoded")
        torch.testing.assert_close(layer(other, x), out)


def test_no_gradient_and_float32() -> None:
    layer, g, x = Layer(), graph(), torch.randn(NODES, 3)
    with torch.no_grad():
        out = layer(g, x)
    assert not out.requires_grad
    torch.testing.assert_close(out, layer(g, x))


def test_options_and_targets() -> None:
    with pytest.raises(DacergnnError) as error:
        compile_forward(on_unsupported="maybe")  # type: ignore[arg-type]
    assert str(error.value) == 'on_unsupported=\'maybe\' is not one of "warn", "error", "ignore".'
    with pytest.raises(DacergnnError) as error:
        compile_forward(config="O2")  # type: ignore[arg-type]
    assert str(error.value) == "config is a str; pass a dacergnn.Config."
    with pytest.raises(DacergnnError) as error:
        compile_forward(3)
    assert str(error.value) == (
        "compile_forward takes a method forward(self, g, ...), a class of modules or a module, not a int."
    )
    layer = compile_forward(dgl.nn.SAGEConv(3, 2, "mean"), config=Config(level="O0"), on_unsupported="error")
    layer(small_graph(), torch.randn(NODES, 3))
    assert compiled_forwards(layer)[0].core.config.level == "O0"


def test_calls_without_a_graph() -> None:
    class Plain(nn.Module):
        @compile_forward
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    with pytest.warns(UserWarning, match="runs uncompiled") as caught:
        Plain()(torch.ones(2))
    assert [str(w.message) for w in caught] == [
        "Plain runs uncompiled: nothing to compile: no rows are gathered or reduced by the ends of edges in what torch "
        "captures of it; `torch._dynamo.explain` tells what that is"
    ]


def test_errors_of_the_user_are_the_users() -> None:
    layer = Layer()
    with warnings.catch_warnings(), pytest.raises(KeyError, match="'w'"):
        layer(small_graph(), torch.randn(NODES, 3))
    with pytest.raises(dgl.DGLError, match="Expect number of features to match number of nodes"):
        layer(graph(), torch.randn(NODES + 1, 3))


def test_error_instead_of_a_warning() -> None:
    class Sorting(nn.Module):
        @compile_forward(on_unsupported="error")
        def forward(self, g: Any, x: Tensor) -> Tensor:
            return dgl.ops.copy_u(g, x).sort(1)[0]

    with pytest.raises(
        UnsupportedCallError,
        match=r"^Sorting cannot be compiled: torch\.sort of a value per edge has no form in a program",
    ):
        Sorting()(small_graph(), torch.randn(NODES, 3))


def test_compile_takes_forwards_and_explain_shows_them() -> None:
    class Pooled(nn.Module):
        @dacergnn.compile
        def forward(self, g: Any, x: Tensor) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = x
                g.update_all(fn.copy_u("h", "m"), fn.max("m", "h"))
                return g.ndata["h"]

    model = nn.Sequential(Pooled())
    assert dacergnn.explain(model).layers == []
    model[0](graph(), torch.randn(NODES, 3))
    (layer,) = dacergnn.explain(model).layers
    assert (layer.name, layer.refusal) == ("0", None)
    with pytest.raises(DacergnnError, match=r"heads is given for a forward, which takes no bindings\."):
        dacergnn.compile(heads=2)(Pooled)
