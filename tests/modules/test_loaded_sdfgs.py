"""SDFGs that users have changed by hand run in the place of a layer's program, and in no other."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import dace
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import DacergnnError
from dacergnn.modules import lowered_program, programs
from dacergnn.modules.loaded import LoadedProgram
from dacergnn.native import build, cache
from tests.modules.layers import (
    K,
    M,
    arguments,
    assert_close,
    features,
    gradients,
    hetero_graph,
    native,
    pyg,
    rgat,
)
from tests.modules.loaded_sdfgs import PLAIN, change, loaded, operators_of, optimized, variant_of


@pytest.mark.compiled
@pytest.mark.parametrize(
    "config", [Config(), PLAIN, pytest.param(Config(implementation="pure"), marks=pytest.mark.check)]
)
def test_what_was_saved_is_the_same_program(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = optimized(config=config)
    before, variant = gradients(layer, arguments()), variant_of(layer)
    paths = layer.save_sdfg(tmp_path / "sdfg")
    with monkeypatch.context() as patch:
        patch.setattr(build, "_compile", None)
        assert layer.load_sdfg(tmp_path / "sdfg") == paths[-2:]
    again = variant_of(layer)
    assert again is not variant
    assert again.forward.lowered == variant.forward.lowered
    assert again.backward is not None is not variant.backward
    assert again.backward.lowered == variant.backward.lowered
    assert_close(gradients(layer, arguments()), before)


SCHEDULES: list[dict[tuple[str, str], object]] = [
    {("total", "schedule_by"): "edges", ("out", "tile_rows"): 64},
    {("total", "schedule_by"): "groups", ("total", "adjacency"): "coo", ("out", "adjacency"): "csc"},
    {("total", "split_hubs"): True, ("out", "adjacency"): "ell"},
    {("out", "adjacency"): "hybrid", ("out", "chunks"): 1},
]


@pytest.mark.compiled
@pytest.mark.parametrize("values", SCHEDULES, ids=str)
def test_schedules_and_formats(values: dict[tuple[str, str], object], tmp_path: Path) -> None:
    """Attributes of operators, by the operator's name and theirs."""
    layer = optimized()
    expected = layer(*arguments())

    def edit(_: object, operators: dict[str, Any]) -> None:
        for (label, name), value in values.items():
            setattr(operators[label], name, value)

    loaded(layer, tmp_path, edit)
    assert_close(layer(*arguments()), expected)
    found = {o.name: o for o in operators_of(layer)}
    for (label, name), value in values.items():
        assert getattr(found[label], name) == value
        if name in ("tile_rows", "chunks"):
            assert variant_of(layer).forward.lowered.schedule[f"{label}/{name}"] == value


def test_a_changed_body(tmp_path: Path) -> None:
    layer, other = optimized(), optimized()
    expected = layer(*arguments()).detach()
    loaded(layer, tmp_path)
    again = arguments()
    for mode in (layer.train, layer.eval, layer.train):
        mode()
        for _ in range(3):
            assert_close(layer(*again), 2 * expected)
            with torch.no_grad():
                assert_close(layer(*again), 2 * expected)
                assert_close(layer(*arguments()), 2 * expected)
        assert_close(other(*again), expected)
    assert f"runs the SDFGs of {tmp_path}" in " ".join(str(dacergnn.explain(layer)).split())
    assert "runs the SDFGs" not in str(dacergnn.explain(other))
    layer.unload_sdfg()
    assert_close(layer(*again), expected)
    layer.load_sdfg(tmp_path)
    assert_close(dacergnn.revert(layer)(*again), expected)


def test_a_changed_backward(tmp_path: Path) -> None:
    """Gradients are those of the file."""
    layer = optimized()
    *others, bias = gradients(layer, arguments())
    layer.save_sdfg(tmp_path)

    def edit(_: object, operators: dict[str, Any]) -> None:
        operators["grad_bias"].body = ['grad_bias += n["grad_out_1"] * 3.0']

    change(tmp_path, edit, "_select_adjacency_backward.sdfg")
    layer.load_sdfg(tmp_path)
    names = [name for name, _ in layer.named_parameters()]
    found = dict(zip(["x", *names], gradients(layer, arguments()), strict=False))
    expected = dict(zip(["x", *names], [*others, bias], strict=False))
    for name, value in expected.items():
        assert_close(found[name], value * (3.0 if name == "bias" else 1.0))


def test_statements_that_become_one_loop(tmp_path: Path) -> None:
    layer = optimized()
    expected = gradients(layer, arguments())

    def edit(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
        first, *others = (operators[name] for name in ("att", "largest", "att_1", "total", "att_2", "out", "out_1"))
        first.spaces = [o.space for o in (first, *others)]
        first.body = [text for o in (first, *others) for text in o.body]
        first.space, first.locals = "ND", ["att", "largest", "att_1", "total", "out"]
        (state,) = sdfg.states()
        for operator in others:
            state.remove_node(operator)

    loaded(layer, tmp_path, edit)
    assert_close(gradients(layer, arguments()), expected)
    assert [o.name for o in operators_of(layer)] == ["hs", "ht", "tmp", "tmp_1", "att"]


def test_a_statement_that_moves_to_the_backward(tmp_path: Path) -> None:
    """What the backward computes again, the forward need not save."""
    layer = optimized()
    expected = gradients(layer, arguments())
    layer.save_sdfg(tmp_path)
    taken: list[Any] = []

    def forward(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
        taken.append(operators["tmp_1"])
        sdfg.arg_names = [name for name in sdfg.arg_names if name != "tmp_1"]
        sdfg.arrays["tmp_1"].transient = True

    def backward(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
        (state,) = sdfg.states()
        state.add_node(taken[0])
        sdfg.arg_names = [name for name in sdfg.arg_names if name != "tmp_1"]
        sdfg.arrays["tmp_1"].transient = True

    change(tmp_path, forward)
    change(tmp_path, backward, "_select_adjacency_backward.sdfg")
    layer.load_sdfg(tmp_path)
    assert_close(gradients(layer, arguments()), expected)
    (report,) = dacergnn.explain(layer).layers
    assert "tmp_1" not in report.builds[0].saved


def test_nothing_of_it_is_in_the_cache_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    programs.compiled_program.cache_clear()
    layer = optimized()
    expected = layer(*arguments()).detach()
    plans = [(path.path, path.path.read_bytes()) for path in cache.plans()]
    assert plans
    gradients(loaded(layer, tmp_path / "sdfg"), arguments())
    assert [(path.path, path.path.read_bytes()) for path in cache.plans()] == plans
    programs.compiled_program.cache_clear()
    monkeypatch.setattr(lowered_program, "compile_program", None)
    assert_close(optimized()(*arguments()), expected)


def test_copies_run_it_and_pickles_refuse(tmp_path: Path) -> None:
    layer = optimized()
    expected = layer(*arguments()).detach()
    loaded(layer, tmp_path)
    for again in (copy.deepcopy(layer), copy.copy(layer), copy.deepcopy(nn.Sequential(layer))[0]):
        assert_close(again(*arguments()), 2 * expected)
    own = native("RGCN")
    gradients(own, (features(), hetero_graph()))
    own.save_sdfg(tmp_path / "own")
    own.load_sdfg(tmp_path / "own")
    assert isinstance(next(iter(copy.deepcopy(own).compiled_programs.values())), LoadedProgram)
    for each in (layer, own):
        with pytest.raises(DacergnnError, match=r"cannot be pickled; call unload_sdfg\(\) before"):
            pickle.dumps(each)
        each.unload_sdfg()
        pickle.loads(pickle.dumps(each))


def test_own_layers_and_functions(tmp_path: Path) -> None:
    @dacergnn.compile(config=PLAIN, x="NS[6]")
    def scaled(g, x):  # type: ignore[no-untyped-def]
        for n in g.nodes():
            n["out"] = n.x * 2.0
        return out  # noqa: F821

    def edit(_: object, operators: dict[str, Any]) -> None:
        operators["out"].body = [operators["out"].body[0].replace("2.0", "5.0")]

    x, graph = features().requires_grad_(), hetero_graph()
    expected = scaled(graph, x).detach() / 2
    loaded(scaled, tmp_path / "function", edit)
    assert_close(scaled(graph, x), 5 * expected)
    scaled.unload_sdfg()
    assert_close(scaled(graph, x), 2 * expected)


def test_a_traced_layer(tmp_path: Path) -> None:
    class Summed(pyg().MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:
            return x_j * 3.0

    layer = dacergnn.optimize(Summed(), config=PLAIN)
    args = (arguments()[0].requires_grad_(), *arguments()[1:])
    for _ in range(4):  # from the third on it is replayed
        expected = layer(*args).detach()

    def edit(_: object, operators: dict[str, Any]) -> None:
        (operator,) = [o for o in operators.values() if "3.0" in o.body[0]]
        operator.body = [operator.body[0].replace("3.0", "6.0")]

    loaded(layer, tmp_path, edit)
    for _ in range(4):
        assert_close(layer(*args), 2 * expected)


def test_under_torch_compile(tmp_path: Path) -> None:
    layer = optimized()
    expected = layer(*arguments()).detach()
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_close(whole(*arguments()), expected)
    loaded(layer, tmp_path)
    assert_close(whole(*arguments()), 2 * expected)


def test_calls_that_it_does_not_cover(tmp_path: Path) -> None:
    layer = optimized()
    layer.double()(*arguments(dtype=torch.float64))  # is known, and refused from then on
    gradients(layer.float(), arguments())
    loaded(layer, tmp_path)
    with pytest.raises(DacergnnError, match=r"first derivatives only, by one backward.*\. unload_sdfg\(\) undoes it"):
        torch.autograd.grad(layer(*arguments()).sum(), [*layer.parameters()], create_graph=True)
    edges = arguments()[1:]
    with pytest.raises(DacergnnError, match="first derivatives only"):
        torch.func.jvp(lambda x: layer(x, *edges), (features(),), (features(),))
    with pytest.raises(DacergnnError, match=r"are for elements of torch\.float32, indices of torch\.int32 and graph"):
        layer.double()(*arguments(dtype=torch.float64))
    layer.float()
    layer(*arguments())
    inference = dacergnn.optimize(rgat(negative_slope=0.3), config=PLAIN)
    with torch.no_grad():
        inference(*arguments())
    inference.save_sdfg(tmp_path / "inference")  # pyright: ignore[reportCallIssue]
    inference.load_sdfg(tmp_path / "inference")  # pyright: ignore[reportCallIssue]
    with pytest.raises(DacergnnError, match='have no gradient of "W", which this call asks for; save, change and'):
        inference(*arguments())


def test_calls_that_run_another_program(tmp_path: Path) -> None:
    """In training, attention is dropped out, which makes another program of it."""
    args = arguments()[:2]
    layer: Any = dacergnn.optimize(pyg().GATConv(K, M, dropout=0.5), config=PLAIN)
    layer.eval()
    expected = layer(*args).detach()
    layer.train()
    torch.manual_seed(0)
    trained = layer(*args).detach()

    def edit(_: object, operators: dict[str, Any]) -> None:
        (last,) = [o for o in operators.values() if "bias" in o.read_arrays]
        target, value = last.body[0].split(" = ")
        last.body = [f"{target} = ({value}) * 2.0"]

    loaded(layer, tmp_path, edit)
    torch.manual_seed(0)
    assert_close(layer(*args), 2 * trained)
    assert_close(layer.eval()(*args), expected)
    torch.manual_seed(0)
    assert_close(layer.train()(*args), 2 * trained)


def test_gradients_of_some_inputs(tmp_path: Path) -> None:
    """A call may ask for fewer gradients than the one that was saved."""
    layer = optimized()
    x = features().requires_grad_()
    expected = torch.autograd.grad(layer(x, *arguments()[1:]).sum(), [layer.bias])
    loaded(layer, tmp_path, lambda *_: None)
    layer.weight.requires_grad_(False)
    assert_close(torch.autograd.grad(layer(*arguments()).sum(), [layer.bias]), expected)
