"""What is saved for the backward and what it computes again: by strategy, by name, within budgets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import dace
import pytest

from dacergnn import Config, parse, print_program
from dacergnn.config import TYPICAL_RATES
from dacergnn.cost import statement_cost
from dacergnn.errors import DacergnnError, ProgramError
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import kind
from dacergnn.program import Program
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.program.golden import bare, learned, parsed
from tests.support.rewrites import sizes

SIZES = sizes()
PROFILE = Profile(tuple(SIZES.items()), single_typed=True)
RATES = TYPICAL_RATES["cpu"]
CHAIN = """
def chain(g, x: NS[8], W: R[8, 8]):
    for e in g.edges():
        e["a"] = linear(e.src.x, W[e.etype])
        e["b"] = exp(e["a"])
        e["c"] = tanh(e["b"] * e["b"])
        e.dst["y"] += e["c"]
    return y
"""


def plan(name: str, **options: object) -> Compilation:
    config = Config(**options)  # pyright: ignore[reportArgumentType]
    return compile_program(parsed(name), learned(name), config, dace.int32, PROFILE, keep=False)


def chain(**options: object) -> Compilation:
    config = Config(passes=(), **options)  # pyright: ignore[reportArgumentType]
    return compile_program(parse(CHAIN), ["x", "W"], config, dace.int32, PROFILE)


def saved_bytes(found: Compilation) -> int:
    program = Program(found.forward)
    return sum(4 * SIZES[program.space(n)] * prod(program.shape(n)) for n in found.saved)


# Strategies


def test_everything_is_saved_where_nothing_is_said() -> None:
    assert sorted(chain().saved) == ["b", "c"]
    assert chain().saved == chain(caching="cache_all").saved


def test_nothing_is_saved_where_all_is_computed_again() -> None:
    found = chain(caching="recompute_all")
    assert found.saved == []
    text = bare(found.backward)
    for line in ('        e["a"] = linear(e.src["x"], W[e.etype])', '        e["b"] = exp(e["a"])'):
        assert line in text
    assert Program(found.forward).outputs == ["y"]


def test_what_a_product_gives_is_saved_and_what_is_light_is_not() -> None:
    assert chain(caching="papers").saved == ["a"]


@pytest.mark.parametrize("value", ["sum(e.f)", "dot_prd(e.f, e.f)"])
def test_a_sum_over_columns_is_not_light(value: str) -> None:
    loop = f"    for e in g.edges():\n        e['b'] = {value}\n        e.dst['y'] += e['b'] * e['b']\n"
    config = Config(passes=(), caching="papers")
    found = compile_program(
        parse(f"def f(g, f: E[8]):\n{loop}    return y\n"), ["f"], config, dace.int32, PROFILE, keep=False
    )
    assert found.saved == ["b"]


def test_a_softmax_keeps_maximum_and_sum_of_each_node() -> None:
    """Zhang et al., section 6.2: nothing of an edge but what products gave."""
    found = plan("rgat", caching="papers")
    assert {"largest", "total"} <= set(found.saved)
    program = Program(found.forward)
    assert not [n for n in found.saved if program.space(n) == "E"]


@pytest.mark.parametrize("caching", ["cache_all", "papers"])
@pytest.mark.parametrize(("name", "heads"), [("rgcn", 1), ("rgat", 2), ("hgt", 2)])
def test_saved_rows_of_edges_hold_a_value_for_each_head_at_most(name: str, heads: int, caching: str) -> None:
    wide: set[str] = set()
    for rows in ({"U": 900_000, "V": 2_000}, {"U": 2_000, "V": 900_000}):
        profile = Profile(tuple((SIZES | rows).items()), single_typed=True)
        found = compile_program(parsed(name), learned(name), Config(caching=caching), dace.int32, profile, keep=False)
        program = Program(found.forward)
        wide |= {kind(program.space(n)) for n in found.saved if prod(program.shape(n)) > heads}
    assert wide, "features are saved of nodes or pairs"
    assert "E" not in wide


def test_results_are_there_in_any_case() -> None:
    text = "def f(g, x: NS[4]):\n    for n in g.nodes():\n        n['y'] = exp(n.x)\n    return y\n"
    found = compile_program(parse(text), ["x"], Config(caching="recompute_all"), dace.int32, PROFILE, keep=False)
    assert found.saved == ["y"]
    assert Program(found.forward).outputs == ["y"]


def test_results_are_neither_computed_again_nor_returned_twice() -> None:
    text = """def f(g, x: NS[4]):
    for n in g.nodes():
        n["a"] = exp(n.x)
        n["y"] = n["a"] * n["a"]
        n["b"] = exp(n["y"])
        n["z"] = n["b"] * n["b"]
    return y, z
"""
    for caching in ("recompute_all", "budget:0"):
        config = Config(passes=(), caching=caching, cache=("y",))
        found = compile_program(parse(text), ["x"], config, dace.int32, PROFILE, keep=False)
        assert found.saved == ["y"]
        assert Program(found.forward).outputs == ["y", "z"]
        again = {statement.target.name for statement in Listing.of(found.backward).statements}
        assert {"a", "b"} <= again
        assert again.isdisjoint(["y", "z"])


@pytest.mark.parametrize("value", ["exp(n.x)", "exp(n.x) * 1.0 + n.x", "n.x * 2.0 + 1.0"])
def test_budgets_where_there_is_nothing_to_choose(value: str) -> None:
    text = f"def f(g, x: NS[4]):\n    for n in g.nodes():\n        n['h'] = {value}\n        n['y'] = n['h'] * 3.0\n"
    for returned in ("y", "h"):
        program = parse(f"{text}    return {returned}\n")
        found = compile_program(program, ["x"], Config(passes=(), caching="budget:0"), dace.int32, PROFILE, keep=False)
        assert set(found.saved) <= {returned}


def test_the_step_is_kept_and_counted() -> None:
    """Here as many arrays are saved as before, but others."""
    found = chain(recompute=("b",))
    (at,) = [i for i, step in enumerate(found.steps) if step.name == "cache_or_recompute"]
    before, step = found.steps[at - 1], found.steps[at]
    assert step.fired == {"forward": 1, "backward": 1}
    for role in ("forward", "backward"):
        assert print_program(step.sdfgs[role]) != print_program(before.sdfgs[role])
    assert set(Program(step.sdfgs["forward"]).outputs) == {"y", "a", "c"}
    assert Program(step.sdfgs["backward"]).producer("b") is not None
    unchanged = next(step for step in chain().steps if step.name == "cache_or_recompute")
    assert unchanged.fired == {"forward": 0, "backward": 0}


# Single arrays


def test_names_overrule_the_strategy() -> None:
    assert chain(recompute=("c",)).saved == ["b"]
    assert sorted(chain(recompute=("b",)).saved) == ["a", "c"], "what its producer reads is saved in its place"
    assert chain(caching="recompute_all", cache=("a",)).saved == ["a"]
    assert chain(caching="budget:1e12", recompute=("b", "c", "a")).saved == []


@pytest.mark.parametrize("option", ["cache", "recompute"])
def test_names_that_are_no_arrays(option: str) -> None:
    with pytest.raises(ProgramError, match=f'^{option}: "q" is no array that the forward computes; it has a, b, c, y'):
        chain(**{option: ("q",)})


def test_bad_options() -> None:
    with pytest.raises(DacergnnError, match=r"^caching='all' is not one of cache_all, recompute_all, papers, auto"):
        Config(caching="all")
    for figure in ("", "-1", "much", "nan"):
        with pytest.raises(DacergnnError, match=r"is not one of cache_all"):
            Config(caching=f"budget:{figure}")
    with pytest.raises(DacergnnError, match=r"^cache='att' is a string; pass a tuple"):
        Config(cache="att")  # pyright: ignore[reportArgumentType]
    with pytest.raises(DacergnnError, match=r"^cache and recompute both name 'a'"):
        Config(cache=("a",), recompute=("a",))


# Budgets


@pytest.mark.parametrize("name", ["rgat", "hgt"])
def test_less_memory_never_takes_less_time_and_budgets_are_kept(name: str) -> None:
    whole = saved_bytes(plan(name))
    counts: list[int] = []
    for share in (1.0, 0.6, 0.3, 0.1, 0.0):
        found = plan(name, caching=f"budget:{share * whole}")
        assert saved_bytes(found) <= share * whole
        counts.append(len(Program(found.backward).operators) if found.backward is not None else 0)
    assert counts[0] < counts[-1]


@pytest.mark.parametrize("share", [0.0, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("streamed", [1e8, 1e10, 1e13])
def test_the_choice_is_the_best_there_is(share: float, streamed: float) -> None:
    """Against all ways to save and to compute again; what is light has its rows at hand where it is computed again."""
    forward = Listing.of(parse(CHAIN))
    rates = replace(RATES, streamed=streamed)
    seconds = {
        s.target.name: statement_cost(
            s, SIZES, space=forward.space, shapes=forward.shape,
            at_hand=[("a", ""), ("b", ""), ("c", "")] if s.target.name in ("b", "c") else (),
        ).seconds(rates)
        for s in forward.statements
    }  # fmt: skip
    names = ["a", "b", "c"]
    reads: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["b"]}
    size = 4 * 8 * SIZES["E"]
    budget = share * 3 * size

    def price(saved: set[str], again: set[str]) -> float:
        there = saved | again
        if len(saved) * size > budget or not {"b", "c"} <= there or any(not {*reads[n]} <= there for n in again):
            return float("inf")
        return sum(2 * size / streamed for _ in saved) + sum(seconds[n] for n in again)

    ways = [
        {n for n, s in zip(names, bits, strict=True) if s == kind}
        for bits in product((0, 1, 2), repeat=3)
        for kind in (1, 2)
    ]
    best = min(price(ways[i], ways[i + 1]) for i in range(0, len(ways), 2))
    found = chain(caching=f"budget:{budget}", rates=rates)
    assert found.backward is not None
    again = {n for n in names if Program(found.backward).producer(n) is not None}
    assert price(set(found.saved), again) == pytest.approx(best)


def test_saved_arrays_take_whole_lines_of_a_budget() -> None:
    """Of one edge of 32 bytes, an array takes 64; of 72 bytes, in double precision, 128."""
    one = replace(PROFILE, rows=tuple({**SIZES, "E": 1}.items()))
    double = parse(CHAIN.replace("8", "9"), dtype=dace.float64)
    for sdfg, line in ((parse(CHAIN), 64), (double, 128)):
        for budget, most in ((line - 1, 0), (line, 1), (2 * line - 1, 1)):
            config = Config(passes=(), caching=f"budget:{budget}")
            assert len(compile_program(sdfg, ["x", "W"], config, dace.int32, one, keep=False).saved) <= most


def test_free_memory_sets_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacergnn.sdfg_passes.cache_or_recompute.free_memory", lambda device: 0.0)
    assert chain(caching="auto").saved == []
    monkeypatch.setattr("dacergnn.sdfg_passes.cache_or_recompute.free_memory", lambda device: float("inf"))
    assert chain(caching="auto").saved == chain(caching="budget:1e15").saved
