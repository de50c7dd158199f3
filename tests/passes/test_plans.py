"""Plans: what passes decide has a name and options, any of which gives a right program, and can be decided again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dace
import pytest

from dacergnn import Config, Plan, parse
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.traversal.plan import RUN_TIME
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.program.golden import PROGRAMS, bare, learned, parsed
from tests.support.computed import assert_same, compute
from tests.support.random_chains import random_chains

ONE_TYPE_EACH = Profile(TYPICAL.rows, single_typed=True, hubs=(("dst", 500_000), ("src", 20)))
OTHER_GRAPH = Profile(
    tuple((TYPICAL.sizes | {"NS": 1_000, "ND": 1_000, "U": 999_000, "V": 1_500, "E": 1_000_000}).items()),
    single_typed=True,
)


def compiled(name: str, profile: Profile = ONE_TYPE_EACH, **options: Any) -> Compilation:
    return compile_program(parsed(name), learned(name), Config(**options), dace.int32, profile, keep=False)


def result(found: Compilation) -> list[object]:
    """All that is decided: the programs, their operators and how these run."""
    parts: list[object] = [found.saved]
    for sdfg in (found.forward, found.backward):
        assert sdfg is not None
        operators: list[Any] = Program(sdfg).operators
        traversals = [o for o in operators if type(o) is Traversal]
        schedules = [(o.schedule_by, o.split_hubs, o.adjacency, *(getattr(o, n) for n in RUN_TIME)) for o in traversals]
        parts += [bare(sdfg), [(o.space, o.body, o.locals) for o in operators], schedules]
    return parts


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_decides_again_on_any_graph(name: str) -> None:
    found = compiled(name)
    again = compiled(name, OTHER_GRAPH, plan=Plan.from_json(found.plan.to_json()))
    assert result(again) == result(found)
    assert again.asked == {n: replace(q, options=again.asked[n].options) for n, q in found.asked.items()}


def test_graphs_that_differ_lead_to_other_plans() -> None:
    assert compiled("rgat", OTHER_GRAPH).plan != compiled("rgat").plan


def deviations(found: Compilation) -> list[tuple[str, str]]:
    return [(n, option) for n, q in found.asked.items() for option in q.options if option != q.answer]


@pytest.mark.parametrize("seed", range(1, 13))
def test_any_answer_gives_the_same_results(seed: int) -> None:
    """Each one that differs from what passes chose for a random program, through the interpreter.

    Of how operators run, which the interpreter does not read, one in ten.
    """
    case = random_chains(seed)
    graph, sdfg = case.graph.hetero(), parse(case.text)
    outputs = Program(sdfg).outputs

    def run(config: Config) -> Compilation:
        return compile_program(sdfg, case.wrt, config, dace.int32, Profile.of(graph), keep=False)

    found = run(Config())
    expected = compute(found, outputs, graph, case.inputs)
    asked = deviations(found)
    schedules = [one for one in asked if "/select_" in one[0]]
    for question, option in [*(one for one in asked if one not in schedules), *schedules[seed % 10 :: 10]]:
        other = run(Config(plan=Plan.of({question: option})))
        assert other.asked[question].answer == option
        try:
            assert_same(compute(other, outputs, graph, case.inputs), expected)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {question} = {option}:\n{case.text}") from error


@pytest.mark.parametrize(
    ("question", "option"),
    [
        ("forward/linear_operator_reordering/0/tmp", "keep"),
        ("forward/compact_materialization/hs", "keep"),
        ("cache_or_recompute/att_2", "recompute"),
        ("forward/traversal_fusion/groups", "keep"),
    ],
)
def test_answers_change_the_program(question: str, option: str) -> None:
    found = compiled("rgat")
    assert option in found.asked[question].options
    assert option != found.asked[question].answer
    assert result(compiled("rgat", plan=Plan.of({question: option}))) != result(found)


def test_what_users_say_comes_before_what_tuning_has_found() -> None:
    said, others = "forward/select_schedule/out/tile_rows", "forward/select_adjacency/out"
    user, tuned = Plan.of({said: "64"}), Plan.of({said: "4096", others: "coo"})
    made = compile_program(
        parsed("rgat"), learned("rgat"), Config(plan=user), dace.int32, ONE_TYPE_EACH, tuned=tuned, keep=False
    )
    assert (made.asked[said].answer, made.asked[others].answer) == ("64", "coo")


def test_a_plan_is_one_of_an_implementation() -> None:
    for name in ("cpu", "cuda"):
        found = compiled("rgat", implementation=name)
        assert found.plan.by_question["implementation"] == name
        assert result(compiled("rgat", implementation=name, plan=found.plan)) == result(found)


def test_inference_leaves_what_a_plan_says_of_gradients_aside() -> None:
    plan = compiled("rgat").plan
    found = compile_program(parsed("rgat"), [], Config(plan=plan), dace.int32, ONE_TYPE_EACH, keep=False)
    assert found.plan.by_question.items() <= plan.by_question.items()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"forward/compact_materialization/nobody": "keep"}, 'nothing asks "forward/compact_materialization/nobody"'),
        ({"forward/compact_materialization/hs": "dst"}, "cannot be answered with 'dst'; options: keep, srcpair"),
        (
            {"forward/linear_operator_reordering/0/tmp": "sideways"},
            "cannot be answered with 'sideways'; options: keep, ",
        ),
        ({"cache_or_recompute/att_2": "lose"}, "options: save, recompute"),
        ({"implementation": "cuda"}, "cannot be answered with 'cuda'; options: cpu"),
        ({"forward/traversal_fusion/groups": "att+out:ND"}, "needs results of loops before they have run"),
        ({"forward/traversal_fusion/groups": "out+nobody:ND"}, '"out\\+nobody:ND" is no group of statements'),
    ],
)
def test_bad_answers(answers: dict[str, str], message: str) -> None:
    with pytest.raises(DacergnnError, match=message):
        compiled("rgat", plan=Plan.of(answers))


def test_bad_plans() -> None:
    with pytest.raises(DacergnnError, match="is answered twice"):
        Plan((("a", "b"), ("a", "c")))
    with pytest.raises(DacergnnError, match="pass pairs"):
        Plan(("a",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DacergnnError, match="pass the text that to_json"):
        Plan.from_json("{")
    with pytest.raises(DacergnnError, match="no object of answers"):
        Plan.from_json("[]")
    with pytest.raises(DacergnnError, match="is a str; pass a dacergnn"):
        Config(plan="O2")  # pyright: ignore[reportArgumentType]
