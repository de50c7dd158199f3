"""A compiled program: what it refuses, and what it may be called with."""

from __future__ import annotations

import threading

import dace
import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph, interpret, parse
from dacergnn.errors import ArrayError
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.pool import POOL
from dacergnn.sdfg_passes import Context, SelectAdjacency

TEXT = """def tiny(g, x: NS[3], W: R[3, 2], b: ONE[2], s: E, unused: E[7]):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
        e["t"] = e.s * e["m"]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["t"]
        n["out"] = n["out"] + b
    return out, m
"""


@pytest.fixture(scope="module")
def tiny() -> Executable:
    sdfg = parse(TEXT, dtype=dace.float64)
    SelectAdjacency().run(sdfg, Context())
    return Executable(sdfg)


def graph(num_nodes: int = 5) -> HeteroGraph:
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 1, 0, 4, 2]])
    return HeteroGraph.from_arrays(edge_index, torch.tensor([0, 1, 1, 0, 0]), num_nodes=num_nodes)


def inputs(g: HeteroGraph, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"x": (g.size("NS"), 3), "W": (2, 3, 2), "b": (1, 2), "s": (5,), "unused": (5, 7)}
    return {n: torch.randn(s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}


def call(tiny: Executable, g: HeteroGraph, values: dict[str, Tensor]) -> list[Tensor]:
    return tiny(tiny.prepare(g), [values[n] for n in tiny.lowered.inputs])


def test_one_build_serves_every_graph(tiny: Executable) -> None:
    for nodes in (5, 6, 50):
        g = graph(nodes)
        values = inputs(g)
        expected = interpret(parse(TEXT), g, **values)
        out, m = call(tiny, g, values)
        assert (out - torch.from_numpy(expected["out_1"])).abs().max() < 1e-13
        assert (m - torch.from_numpy(expected["m"])).abs().max() < 1e-13


def test_prepared_is_kept_with_the_graph(tiny: Executable) -> None:
    g = graph()
    assert tiny.prepare(g) is tiny.prepare(g)
    assert tiny.prepare(g) is not tiny.prepare(graph())


def test_rows_of_one_may_be_left_out(tiny: Executable) -> None:
    g = graph()
    values = inputs(g)
    out, _ = call(tiny, g, values)
    assert torch.equal(call(tiny, g, {**values, "b": values["b"][0]})[0], out)


def test_last_outputs_are_saved_in_one_buffer(tiny: Executable) -> None:
    g = graph()
    executable = Executable(tiny.lowered, results=1)
    prepared = executable.prepare(g)
    values = inputs(g)
    results, lease = executable.run(prepared, [values[n] for n in executable.lowered.inputs])
    assert lease is not None
    assert len(results) == 1
    expected = call(tiny, g, values)[1]
    saved = lease.buffer[: expected.nbytes].view(expected.dtype).view_as(expected)
    assert torch.equal(saved, expected)


def test_calls_on_other_graphs_use_the_memory_of_small_calls_again(tiny: Executable) -> None:
    first, second = tiny.prepare(graph()), tiny.prepare(graph())
    one, other = tiny.frame(first)[2], tiny.frame(second)[2]
    assert one.data_ptr() != other.data_ptr(), "both calls are under way"
    POOL.give_workspace(one, first.workspace)
    assert tiny.frame(second)[2] is one


def test_threads_share_a_program(tiny: Executable) -> None:
    g = graph()
    expected = [call(tiny, g, inputs(g, seed))[0] for seed in range(4)]
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = inputs(g, seed)
        wrong.extend(seed for _ in range(100) if not torch.equal(call(tiny, g, values)[0], expected[seed]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


WRONG = [
    (
        "x",
        torch.zeros(5, 3),
        "x has dtype torch.float32, but the layer was compiled for torch.float64; use .to(torch.float64).",
    ),
    (
        "x",
        torch.zeros(5, 3, dtype=torch.int64),
        "x has dtype torch.int64, but the layer was compiled for torch.float64; use .to(torch.float64).",
    ),
    (
        "x",
        torch.zeros(5, 3, dtype=torch.float64, device="meta"),
        "x is on meta, but the graph is on cpu; move it with .cpu().",
    ),
    (
        "x",
        torch.zeros(4, 3, dtype=torch.float64),
        "x has shape (4, 3), but the graph and the layer ask for (5, 3).",
    ),
    (
        "x",
        torch.zeros(3, 5, dtype=torch.float64),
        "x has shape (3, 5), but the graph and the layer ask for (5, 3).",
    ),
    (
        "W",
        torch.zeros(3, 3, 2, dtype=torch.float64),
        "W has shape (3, 3, 2), but the graph and the layer ask for (2, 3, 2).",
    ),
    ("b", torch.zeros(3, dtype=torch.float64), "b has shape (3,), but the graph and the layer ask for (1, 2)."),
    ("s", torch.zeros(6, dtype=torch.float64), "s has shape (6,), but the graph and the layer ask for (5,)."),
]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_wrong_inputs(tiny: Executable, name: str, value: Tensor, message: str, known: bool) -> None:
    g = graph()
    if known:
        call(tiny, g, inputs(g))
    with pytest.raises(ArrayError) as caught:
        call(tiny, g, {**inputs(g), name: value})
    assert str(caught.value) == message
    assert caught.value.argument == name
    call(tiny, g, inputs(g))  # nothing wrong is remembered as right


def test_too_few_inputs(tiny: Executable) -> None:
    g = graph()
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        tiny(tiny.prepare(g), [])
