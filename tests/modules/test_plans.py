"""Plans of users in whole models: whom they are for, when a question that nobody asks is an error, what lasts."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config, Plan
from dacergnn.errors import DacergnnError
from dacergnn.modules import RGAT, programs
from dacergnn.modules.layer import core_of
from dacergnn.native import build
from dacergnn.target import find
from tests.modules.layers import K, M, R, arguments, assert_close, features, gradients, hetero_graph, pyg, rgat, rgcn

FIRST, SECOND = "first", "second"
TILES = "forward/select_schedule/tmp/tile_rows"
"""Attention asks this, and convolution does not."""
REORDER = "forward/compact_materialization/msg"
"""Convolution asks this, and attention does not."""
BACKWARD = "backward/traversal_fusion/groups"
STRAY = "forward/select_schedule/nobody/tile_rows"


class Model(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.between = nn.Linear(M, K)

    def forward(self, x: Tensor, *edges: Any) -> Tensor:
        return self.second(self.between(self.first(x, *edges)), *edges)


def planned(plan: Plan, second: nn.Module | None = None) -> Any:
    model = Model(rgcn(), rgat() if second is None else second)
    return dacergnn.optimize(model, config=Config(plan=plan), on_unsupported="error")


def answer(model: nn.Module, layer: str, question: str) -> str | None:
    (report,) = [r for r in dacergnn.explain(model).layers if r.name == layer]
    return report.builds[-1].plan.by_question.get(question)


def call(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(*arguments())


def test_one_choice_of_one_layer() -> None:
    attention = pyg().RGATConv(M, 4, R)
    model = nn.ModuleDict({"convs": nn.ModuleList([pyg().RGATConv(M, M, R), attention])})
    fast = dacergnn.optimize(model, config=Config(plan=Plan.of({"convs.0": {TILES: 64}})))
    for layer in fast["convs"]:  # pyright: ignore[reportIndexIssue]
        layer(features(channels=M), *arguments()[1:])
    found = [answer(fast, name, TILES) for name in ("convs.0", "convs.1")]
    assert found[0] == "64" != found[1]


def test_what_names_no_layer_is_for_those_that_ask() -> None:
    model = planned(Plan.of({TILES: "256", REORDER: "keep"}))
    assert_close(call(model), call(dacergnn.revert(model)))
    assert (answer(model, FIRST, REORDER), answer(model, FIRST, TILES)) == ("keep", None)
    assert (answer(model, SECOND, REORDER), answer(model, SECOND, TILES)) == (None, "256")


def test_answers_for_a_layer_come_first() -> None:
    model = planned(Plan.of({TILES: "256", SECOND: {TILES: "64"}}))
    call(model)
    assert answer(model, SECOND, TILES) == "64"


@pytest.mark.parametrize("plan", [Plan.of({STRAY: "64"}), Plan.of({SECOND: {STRAY: "64"}})])
def test_what_no_layer_asks_is_an_error_once_all_have_been_called(plan: Plan) -> None:
    model = planned(plan)
    model.first(*arguments())
    assert f'plan: no program has asked "{STRAY}" so far' in str(dacergnn.explain(model))
    for _ in range(3):
        with pytest.raises(DacergnnError, match=f'nothing asks "{STRAY}" of'):
            call(model)
    assert "explain" not in str(dacergnn.explain(model))


def test_questions_about_gradients_wait_for_gradients() -> None:
    stray = Plan.of({"backward/select_schedule/nobody/tile_rows": "64", TILES: "64"})
    model = planned(stray)
    call(model)
    with pytest.raises(DacergnnError, match='nothing asks "backward/select_schedule/nobody'):
        model(*arguments())
    asked = planned(Plan.of({BACKWARD: "keep"}))
    call(asked)
    assert dacergnn.explain(asked).unasked == [BACKWARD]
    gradients(asked, arguments())
    assert dacergnn.explain(asked).unasked == []


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(DacergnnError, match='no layer "third" is compiled here, but these: first, second; give it the'):
        planned(Plan.of({"third": {TILES: "64"}}))


@pytest.fixture
def _no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find(None).executable_class(), "build", lambda *_: pytest.fail("built"))


def by_optimize(plan: Plan) -> Any:
    return dacergnn.optimize(rgat(), config=Config(plan=plan))(*arguments())


def by_module(plan: Plan) -> Any:
    return RGAT(K, 4, R, config=Config(plan=plan))(features(), hetero_graph())


def by_function(plan: Plan) -> Any:
    @dacergnn.compile(config=Config(plan=plan))
    def scaled(g, x):  # type: ignore[no-untyped-def]
        for n in g.nodes():
            n["out"] = n.x * 2.0
        return out  # noqa: F821

    return scaled(hetero_graph(), features())


@pytest.mark.usefixtures("_no_build")
@pytest.mark.parametrize("run", [by_optimize, by_module, by_function])
def test_one_layer_refuses_at_once(run: Any) -> None:
    for plan in (Plan.of({STRAY: "64"}), Plan.of({"(model)": {STRAY: "64"}})):
        with pytest.raises(DacergnnError, match=f'nothing asks "{STRAY}" of this program'):
            run(plan)
    with pytest.raises(DacergnnError, match=r'no layer "conv" is compiled here, but these: \(model\)'):
        run(Plan.of({"conv": {TILES: "64"}}))


def test_what_several_layers_may_ask_is_not_taken_from_the_cache_for_one_alone() -> None:
    """What a layer of a model was compiled to with a plan that is not all for it, is kept."""
    plan = Plan.of({TILES: "1024", REORDER: "keep"})
    call(planned(plan))
    programs.compiled_program.cache_clear()
    with pytest.raises(DacergnnError, match=f'nothing asks "{TILES}" of this program'), torch.no_grad():
        dacergnn.optimize(rgcn(), config=Config(plan=plan))(*arguments())


def two_programs() -> nn.Module:
    """A layer whose calls run two programs, since batch normalization stands between them."""

    softmax = pytest.importorskip("torch_geometric.utils").softmax

    class Twice(pyg().MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.norm = nn.BatchNorm1d(K)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            first = self.norm(self.propagate(edge_index, x=x, ends=False))
            return self.propagate(edge_index, x=first, ends=True)

        def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: int, ends: bool) -> Tensor:
            if not ends:
                return x_j
            return softmax((x_i * x_j).sum(-1), index, num_nodes=size_i).unsqueeze(-1) * x_j

    return Twice()


def test_programs_of_a_traced_layer_share_a_plan() -> None:
    plain: Any = dacergnn.optimize(two_programs())
    plain(*arguments())
    asked = [{q for b in p.variants for q in b.compilation.asked} for p in core_of(plain).compiled_programs.values()]
    assert len(asked) == 2
    question = min(q for q in asked[1] - asked[0] if q.endswith("tile_rows"))
    fast = dacergnn.optimize(two_programs(), config=Config(plan=Plan.of({question: "64"})))
    assert_close(fast(*arguments()), plain(*arguments()))
    assert answer(fast, "", question) == "64"
    wrong = dacergnn.optimize(two_programs(), config=Config(plan=Plan.of({STRAY: "64"})))
    for _ in range(4):
        with pytest.raises(DacergnnError, match=f'nothing asks "{STRAY}" of this layer'):
            wrong(*arguments())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_follow_the_plan(copied: Any) -> None:
    again = copied(planned(Plan.of({TILES: "64", REORDER: "keep"})))
    call(again)
    assert answer(again, SECOND, TILES) == "64"
    with pytest.raises(DacergnnError, match="nothing asks"):
        call(copied(planned(Plan.of({STRAY: "64"}))))


def test_the_plan_of_a_report_makes_all_choices_again(tmp_path: Path) -> None:
    model = planned(Plan())
    gradients(model, arguments())
    report = dacergnn.explain(model)
    report.plan.save(tmp_path / "plan.json")
    again = planned(Plan.load(tmp_path / "plan.json"))
    assert_close(gradients(again, arguments()), gradients(model, arguments()))
    assert dacergnn.explain(again).plan == report.plan


def test_questions_are_shown() -> None:
    model = planned(Plan.of({TILES: "64"}))
    call(model)
    assert f"      {TILES}: 64 (64, 256, 1024, 4096)" in str(dacergnn.explain(model, verbose=True)).splitlines()
    assert TILES not in str(dacergnn.explain(model))
    shown = dacergnn.explain(model).layers[1].builds[0].questions
    assert shown[TILES].options == ("64", "256", "1024", "4096")


def test_an_answer_that_changes_no_code_shares_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    call(planned(Plan.of({TILES: "256"})))
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("built"))
    call(planned(Plan.of({TILES: "1024"})))
