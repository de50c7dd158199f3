"""Arrays that come in parts: they equal those that torch puts together, whatever the parts look like."""

from __future__ import annotations

from collections.abc import Callable

import dace
import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph, parse
from dacergnn.errors import ArrayError
from dacergnn.runtime import executable as executable_module
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.stacks import Stack, stacks_of
from dacergnn.sdfg_passes import Context, SelectAdjacency

TEXT = """def parts(g, x: NS[3], W: R[3, 2], a: R[2], b: R[2], c: ONE[2]):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype]) * a[e.etype] + b[e.etype]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["m"]
        n["out"] = n["out"] + c
    return out
"""
STACKS = stacks_of(Stack(("W",), 2), Stack(("a", "b"), 2), Stack(("x",), 3, typed=False))
GRAPH = HeteroGraph.from_arrays(
    torch.tensor([[0, 1, 2, 3, 1], [1, 1, 0, 4, 2]]), torch.tensor([0, 1, 1, 0, 0]), num_nodes=5
)
SHAPES = [(3, 2), (3, 2), (4,), (4,), (2, 3), (0, 3), (3, 3)]


@pytest.fixture(scope="module")
def program() -> Executable:
    sdfg = parse(TEXT, dtype=dace.float64)
    SelectAdjacency().run(sdfg, Context())
    return Executable(sdfg)


@pytest.fixture(params=["described to C", "asked one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How tensors are read; older torch has the second way only."""
    if request.param == "asked one by one":
        monkeypatch.setattr(executable_module, "DESCRIBE", None)


def draw(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES]


C = torch.tensor([1.5, -2.0], dtype=torch.float64)


def whole(program: Executable, parts: list[Tensor]) -> Tensor:
    arrays = STACKS.arrays(parts) | {"c": C}
    return program(program.prepare(GRAPH), [arrays[n] for n in program.lowered.inputs])[0]


def stacked(program: Executable, parts: list[Tensor]) -> Tensor:
    return program(program.prepare(GRAPH, STACKS), [C, *parts])[0]


def test_arrays_by_torch() -> None:
    parts = draw()
    arrays = STACKS.arrays(parts)
    assert torch.equal(arrays["W"], torch.stack(parts[:2]))
    assert torch.equal(arrays["a"], torch.stack([parts[2][:2], parts[3][:2]]))
    assert torch.equal(arrays["b"], torch.stack([parts[2][2:], parts[3][2:]]))
    assert torch.equal(arrays["x"], torch.cat(parts[4:]))
    assert all(a.is_contiguous() for a in arrays.values())


def test_equal_stacks_are_one_object() -> None:
    assert stacks_of(Stack(("W",), 2), Stack(("a", "b"), 2), Stack(("x",), 3, typed=False)) is STACKS


@pytest.mark.usefixtures("way")
def test_parts_equal_the_whole(program: Executable) -> None:
    for seed in range(3):
        assert torch.equal(stacked(program, draw(seed)), whole(program, draw(seed)))


@pytest.mark.usefixtures("way")
def test_parts_of_other_sizes_on_the_same_graph(program: Executable) -> None:
    for sizes in ([2, 0, 3], [5, 0, 0], [1, 1, 3], [2, 0, 3]):
        parts = draw()
        parts[4:] = torch.cat(parts[4:]).split(sizes)
        assert torch.equal(stacked(program, parts), whole(program, draw()))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_parts_that_are_not_contiguous(program: Executable, number: int) -> None:
    expected = whole(program, draw())
    for _ in range(2):
        parts = draw()
        parts[number] = torch.stack([parts[number], parts[number] + 7], dim=-1)[..., 0]
        assert number == 5 or not parts[number].is_contiguous()
        assert torch.equal(stacked(program, parts), expected)
    assert torch.equal(stacked(program, draw()), expected)


def test_large_parts_are_copied_whole() -> None:
    sdfg = parse("def large(g, x: NS[64]):\n    for n in g.src_nodes():\n        n['y'] = n.x * 2.0\n    return y\n")
    SelectAdjacency().run(sdfg, Context())
    large = Executable(sdfg)
    none = torch.zeros(0, dtype=torch.int64)
    g = HeteroGraph.from_arrays(torch.stack([none, none]), none, num_nodes=12_001, num_edge_types=1)
    x = torch.randn(12_001, 64)
    stacks = stacks_of(Stack(("x",), 3, typed=False))
    (found,) = large(large.prepare(g, stacks), list(x.split([7_000, 1, 5_000])))
    assert torch.equal(found, x * 2)


Change = Callable[[Tensor], Tensor]
WRONG: list[tuple[int, Change, str]] = [
    (0, lambda t: t.float(), "part 0 of W has dtype torch.float32, but the layer was compiled for torch.float64; "
     "use .to(torch.float64)."),
    (1, lambda t: t.to("meta"), "part 1 of W is on meta, but the graph is on cpu; move it with .cpu()."),
    (1, lambda t: t[:2], "part 1 of W has shape (2, 2), but the graph and the layer ask for 6 numbers."),
    (3, lambda t: t[:2], "part 1 of a, b has shape (2,), but the graph and the layer ask for 4 numbers."),
    (4, lambda t: t[:1], "x has 4 rows in 3 parts, but the graph asks for 5."),
    (4, lambda t: t.T.contiguous(), "part 0 of x has shape (3, 2), but the graph and the layer ask for 3 numbers in a "
     "row."),
    (5, lambda t: t.long(), "part 1 of x has dtype torch.int64, but the layer was compiled for torch.float64; "
     "use .to(torch.float64)."),
]  # fmt: skip


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("number", "change", "message"), WRONG)
def test_wrong_parts(program: Executable, number: int, change: Change, message: str, known: bool) -> None:
    if known:
        stacked(program, draw())
    parts = draw()
    parts[number] = change(parts[number])
    with pytest.raises(ArrayError) as caught:
        stacked(program, parts)
    assert str(caught.value) == message
    assert torch.equal(stacked(program, draw()), whole(program, draw()))  # nothing wrong is remembered as right


@pytest.mark.usefixtures("way")
def test_what_is_no_tensor(program: Executable) -> None:
    stacked(program, draw())
    with pytest.raises(AttributeError):
        stacked(program, [*draw()[:-1], 1.0])  # type: ignore[list-item]


def test_gates_get_the_positions_of_their_parts() -> None:
    seen: list[list[int]] = []
    STACKS.arrays(draw(), lambda _, positions: seen.append([*positions]))
    assert seen == [[0, 1], [2, 3], [4, 5, 6]]
