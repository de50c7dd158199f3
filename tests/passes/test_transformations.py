"""The passes as DaCe transformations: found, applied, kept in files, as by DaCe's optimizer and VS Code's extension."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dace
import pytest
from dace import serialize
from dace.config import set_temporary
from dace.transformation.optimizer import Optimizer, SDFGOptimizer
from dace.transformation.transformation import PatternTransformation

from dacergnn import Config, parse, print_program
from dacergnn.config import PASSES
from dacergnn.program import verify
from dacergnn.sdfg_passes import Pipeline, compile_program, vscode
from dacergnn.sdfg_passes.transformations import PRICED, TRANSFORMATIONS, ProgramTransformation
from dacergnn.viewer import write_sdfg
from tests.program.golden import PROGRAMS, parsed

OURS = list(TRANSFORMATIONS.values())
ELSEWHERE = 'def p(g, x: NS[4]):\n    for n in g.dst_nodes():\n        n["y"] = exp(n.x)\n    return y\n'


def in_file(sdfg: dace.SDFG, folder: Path) -> dace.SDFG:
    """What is there after saving and loading."""
    file = folder / f"{sdfg.name}.sdfg"
    sdfg.save(str(file), include_transformation_history=True)
    return dace.SDFG.from_file(str(file))


def matches(sdfg: dace.SDFG, **options: Any) -> dict[str, ProgramTransformation]:
    """The transformations of ours that DaCe offers, by the names of the passes."""
    found = list(Optimizer(sdfg).get_pattern_matches(patterns=OURS, **options))
    named = {name: m for name, kind in TRANSFORMATIONS.items() for m in found if type(m) is kind}
    assert len(named) == len(found)
    return named


def test_every_pass_is_a_transformation_that_dace_knows() -> None:
    assert list(TRANSFORMATIONS) == [*PASSES, "select_schedule", "select_adjacency"]
    known = Optimizer(dace.SDFG("empty")).patterns
    assert [k for k in known if issubclass(k, ProgramTransformation)] == [k for k in known if k in OURS]
    assert known.issuperset(OURS)
    # Histories in files refer to them by name alone.
    names = [k.__name__ for k in PatternTransformation.subclasses_recursive(all_subclasses=True)]
    assert all(names.count(kind.__name__) == 1 for kind in OURS)
    assert TRANSFORMATIONS["compact_materialization"].__name__ == "CompactMaterialization"
    assert all("Precondition" in (inspect.getdoc(kind) or "") for kind in OURS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_offered_where_the_pass_fires_and_equal_to_the_pipeline(name: str, tmp_path: Path) -> None:
    sdfg = in_file(parsed(name), tmp_path)
    offered = matches(sdfg)
    for step in compile_program(sdfg, [], Config(), dace.int32).steps[1:]:
        assert (step.name in offered) == (step.fired["forward"] > 0)
        if step.name in offered:
            offered[step.name].apply_pattern()
            verify(sdfg)
            sdfg.validate()
            assert print_program(sdfg) == print_program(step.sdfgs["forward"])
            sdfg = in_file(sdfg, tmp_path)
            offered = matches(sdfg)
    assert offered == {}  # access schemes are fixed


def test_not_offered_elsewhere() -> None:
    @dace.program
    def doubled(x: dace.float64[4]):  # type: ignore[no-untyped-def]
        return 2.0 * x

    assert matches(doubled.to_sdfg()) == {}
    assert list(matches(parse(ELSEWHERE))) == ["select_adjacency"]
    fused = parsed("rgat")
    fused.apply_transformations(TRANSFORMATIONS["traversal_fusion"])
    assert "compact_materialization" not in matches(fused)  # it expects one statement in each operator


def test_apply_transformations_repeated_comes_to_an_end() -> None:
    sdfg = parsed("rgat")
    kinds = [TRANSFORMATIONS["linear_operator_reordering"], TRANSFORMATIONS["compact_materialization"]]
    assert sdfg.apply_transformations_repeated(kinds, validate_all=True) == 2
    assert sdfg.apply_transformations_repeated(kinds) == 0


def test_priced_passes_go_by_their_properties() -> None:
    """Few rows to multiply once sums are made first: make them first; as many as edges: do not."""
    order = TRANSFORMATIONS["aggregation_order"]
    sdfg = parsed("gcn")
    sdfg.apply_transformations(TRANSFORMATIONS["gemm_scale_fusion"])
    few, many = {"E": 1_000_000, "U": 1_000_000, "V": 5_000}, {"E": 1_000_000, "U": 1_000_000, "V": 1_000_000}
    assert sdfg.apply_transformations(order, options={"sizes": many}) == 0
    assert sdfg.apply_transformations(order, options={"sizes": few}) == 1
    assert "dst_pair" in print_program(sdfg)
    hector: Any = TRANSFORMATIONS["compact_materialization"]()
    hector.level = "hector"
    sdfg = parsed("rgat")
    hector.rewrite(sdfg)
    assert "src_pair" in print_program(sdfg)
    assert "dst_pair" not in print_program(sdfg)
    with pytest.raises(ValueError, match="O3"):
        hector.level = "O3"


def test_schedules_go_by_the_sizes() -> None:
    kind = TRANSFORMATIONS["select_schedule"]
    sdfg = parse('def p(g, x: E):\n    for e in g.edges():\n        e.dst["y"] += e.x * 2.0\n    return y\n')
    assert sdfg.apply_transformations(kind) == 0  # ten edges for each destination
    assert sdfg.apply_transformations_repeated(kind, options={"sizes": {"E": 20, "ND": 10}}) == 1
    assert sdfg.apply_transformations(kind) == 1
    assert sdfg.apply_transformations(kind, options={"longest": {"dst": 20_000}}) == 1
    assert sdfg.apply_transformations(kind) == 1
    assert {"sizes", "longest"} <= kind.__properties__.keys()


def test_unpriced_passes_go_by_nothing() -> None:
    pipeline = Pipeline.of(Config())
    for step in (*pipeline.forward, *pipeline.both):
        if step.name in {*PASSES} - {*PRICED}:
            step.run(parsed("rgat"), None)  # type: ignore[arg-type]


def test_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`sdfgcc -O` asks for one transformation after the other."""
    names = [TRANSFORMATIONS[step].__name__ for step in ("linear_operator_reordering", "compact_materialization")]
    answers = iter([f"{names[0]}$0(level='O2')", f"{names[1]}$0", "quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    file = tmp_path / "program.sdfg"
    parsed("rgat").save(str(file))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sdfg = SDFGOptimizer(dace.SDFG.from_file(str(file))).optimize()
    steps = compile_program(parsed("rgat"), [], Config(), dace.int32).steps
    expected = next(s for s in steps if s.name == "compact_materialization").sdfgs["forward"]
    assert print_program(sdfg) == print_program(expected)


class Editor:
    """What the extension's server does: every request carries the SDFG as JSON, every answer too."""

    def load(self, file: str) -> None:
        spec = importlib.util.spec_from_file_location(file, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[file] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[file])

    def transformations(self, sdfg: dict[str, Any]) -> list[dict[str, Any]]:
        with set_temporary("testing", "serialize_all_fields", value=True):
            optimizer = SDFGOptimizer(dace.SDFG.from_json(sdfg))
            found = [m.to_json() for m in optimizer.get_pattern_matches(permissive=False)]
            found += [m.to_json() for m in optimizer.missed_opportunities]
        return json.loads(json.dumps(found))

    def apply(self, sdfg: dict[str, Any], transformation: dict[str, Any]) -> dict[str, Any]:
        target = dace.SDFG.from_json(sdfg)
        match = serialize.from_json(transformation)
        match._sdfg = target.cfg_list[match.cfg_id]
        match.apply_pattern(match._sdfg)
        return json.loads(json.dumps(target.to_json(include_transformation_history=True)))

    def replay(self, sdfg: dict[str, Any], index: int) -> dace.SDFG:
        loaded = dace.SDFG.from_json(sdfg)
        for match in loaded.transformation_hist[: index + 1]:
            match._sdfg = loaded.orig_sdfg.cfg_list[match.cfg_id]
            match.apply_pattern(match._sdfg)
        return loaded.orig_sdfg


@pytest.fixture
def editor() -> Iterator[Editor]:
    file = str(vscode.__file__)
    found = Editor()
    found.load(file)
    yield found
    del sys.modules[file]


def test_editor_lists_applies_and_replays(editor: Editor, tmp_path: Path) -> None:
    steps = compile_program(parsed("rgat"), [], Config(), dace.int32).steps[1:]
    fired = [step for step in steps if step.fired["forward"]]
    write_sdfg(parsed("rgat"), tmp_path / "program.sdfg")
    sdfg = json.loads((tmp_path / "program.sdfg").read_text())
    for step in fired:
        name = TRANSFORMATIONS[step.name].__name__
        (chosen,) = [t for t in editor.transformations(sdfg) if t["transformation"] == name]
        assert ("sizes" in chosen) == (step.name in (*PRICED, "select_schedule"))
        sdfg = editor.apply(sdfg, chosen)
        assert print_program(dace.SDFG.from_json(sdfg)) == print_program(step.sdfgs["forward"])
    history = dace.SDFG.from_json(sdfg).transformation_hist
    assert [type(match) for match in history] == [TRANSFORMATIONS[step.name] for step in fired]
    for index, step in enumerate(fired):
        assert print_program(editor.replay(sdfg, index)) == print_program(step.sdfgs["forward"])


def test_editor_reads_the_properties() -> None:
    """Its forms are made from the metadata of properties."""
    for kind in OURS:
        assert serialize._DACE_SERIALIZE_TYPES[kind.__name__] is kind
        for prop in kind.__properties__.values():
            assert json.dumps(prop.meta_to_json(prop))
    properties = TRANSFORMATIONS["linear_operator_reordering"].__properties__
    assert {"level", "sizes", "single_typed"} <= set(properties)
    assert properties["sizes"].value_type is int
    assert not {"level", "sizes"} & set(TRANSFORMATIONS["narrow_products"].__properties__)
    assert {"index", "code"} <= set(TRANSFORMATIONS["select_adjacency"].__properties__)
