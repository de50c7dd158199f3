"""What compiling led to is kept between processes: when it is found again, when not, and what it still offers."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import grimp
import pytest
import torch
from click.testing import CliRunner
from dace.config import set_temporary
from torch import Tensor

import dacergnn
from dacergnn import Config, HeteroGraph, Plan
from dacergnn.cli import main
from dacergnn.errors import CacheError, ProgramError
from dacergnn.frontends import ProgramSource
from dacergnn.graph.profile import TYPICAL
from dacergnn.modules import HGT, RGAT, RGCN, lowered_program
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.programs import compiled_program, new_program
from dacergnn.native import build, cache
from dacergnn.program import Program
from dacergnn.runtime import plan_cache
from dacergnn.runtime.lower import argument

SOURCE = """
def weigh(g, name):
    for e in g.edges():
        e[name] = e[name] * e.s

def tiny(g, x, W, s, b):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
    weigh(g, "m")
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["m"]
        n["out"] = n["out"] * factor + b
    return out
"""
NAMES = ["x", "W", "s", "b"]
ALL = (True,) * 4


def function_of(text: str, folder: Path) -> FunctionType:
    """The function ``tiny`` of a module with this text."""
    file = folder / f"tiny_{len(list(folder.glob('*.py')))}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.tiny


def program_of(text: str, folder: Path, **bindings: object) -> ProgramSource:
    given = {"x": "NS[3]", "W": "R[3, 2]", "s": "E", "b": "ONE[2]", "factor": 2.0}
    return ProgramSource.of(function_of(text, folder), **{**given, **bindings})


Circumstances = dict[str, Any]


def circumstances(folder: Path) -> Circumstances:
    return {
        "program": program_of(SOURCE, folder), "dtype": torch.float64, "index": torch.int32,
        "config": Config(), "profile": TYPICAL,
    }  # fmt: skip


def graph() -> HeteroGraph:
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 1, 0, 4, 2]])
    return HeteroGraph.from_arrays(edge_index, torch.tensor([0, 1, 1, 0, 0]), num_nodes=5)


def results(program: CompiledProgram) -> list[Tensor]:
    """The result on a small graph, and the gradients of all inputs."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (2, 3, 2), (5,), (1, 2)]
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    (out,) = program(graph(), inputs)
    return [out.detach(), *torch.autograd.grad((out * out).sum(), inputs)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Tensor]]:
    """A cache that holds `circumstances` for gradients of all inputs, and their results when they were compiled."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DACERGNN_CACHE_DIR", str(folder))
        return folder, results(new_program(**circumstances(tmp_path_factory.mktemp("source"))))


@pytest.fixture
def folder(kept: tuple[Path, list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that cache, in use, and no programs in memory."""
    shutil.copytree(kept[0], tmp_path / "cache")
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    compiled_program.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def given(tmp_path: Path, folder: Path) -> Circumstances:
    return circumstances(tmp_path)


def forbid(monkeypatch: pytest.MonkeyPatch, *, compiler: bool = True) -> None:
    """From here on neither the parser nor the passes run, nor the C++ compiler."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    graph()  # builds the library that sorts edges
    for name in ("parse_flat", "compile_program", "lower"):
        monkeypatch.setattr(lowered_program, name, refuse)
    if compiler:
        monkeypatch.setattr(build, "_compile", refuse)


def test_nothing_is_compiled_again(
    kept: tuple[Path, list[Tensor]], given: Circumstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch)
    again = new_program(**given)
    assert again.inputs == NAMES
    for value, right in zip(results(again), kept[1], strict=True):
        assert torch.equal(value, right)


SECOND = """
import sys
from pathlib import Path
from tests.runtime.test_plan_cache import ALL, circumstances, new_program, lowered_program
lowered_program.compile_program = None
print(len(new_program(**circumstances(Path(sys.argv[1]))).variant(ALL).slots))
"""


@pytest.mark.usefixtures("folder")
def test_another_process_finds_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SECOND, str(tmp_path)],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout == "4\n", run.stderr


OTHER: dict[str, Callable[[Circumstances, Path], Circumstances]] = {
    "program": lambda g, f: {"program": program_of(SOURCE.replace("+ b", "- b"), f)},
    "helper": lambda g, f: {"program": program_of(SOURCE.replace("e[name] * e.s", "e[name] + e.s"), f)},
    "name": lambda g, f: {"program": replace(g["program"], source=renamed(f))},
    "constant": lambda g, f: {"program": program_of(SOURCE, f, factor=3.0)},
    "type of constant": lambda g, f: {"program": program_of(SOURCE, f, factor=2)},
    "shape": lambda g, f: {"program": program_of(SOURCE, f, x="NS[4]", W="R[4, 2]")},
    "dtype": lambda g, f: {"dtype": torch.float32},
    "index": lambda g, f: {"index": torch.int64},
    "level": lambda g, f: {"config": Config(level="O0")},
    "passes": lambda g, f: {"config": Config(passes=("traversal_fusion",))},
    "implementation": lambda g, f: {"config": Config(implementation="pure")},
    "rows": lambda g, f: {"profile": replace(TYPICAL, rows=(*TYPICAL.rows[:-1], ("RNS", 7)))},
    "single_typed": lambda g, f: {"profile": replace(TYPICAL, single_typed=True)},
}


def test_plans_share_a_build_and_keep_their_schedules(given: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that differ in run-time choices alone are built once, and each is found with its own values."""
    asked = [n for n in new_program(**given).variant(ALL).compilation.asked if n.endswith("/chunks")]
    assert {n.split("/")[0] for n in asked} == {"forward", "backward"}
    given["config"] = Config(plan=Plan.of(dict.fromkeys(asked, "4")))
    with monkeypatch.context() as no_compiler:
        no_compiler.setattr(build, "_compile", None)
        new_program(**given).variant(ALL)
    forbid(monkeypatch)
    for config, expected in ((Config(), 16), (given["config"], 4)):
        found = new_program(**{**given, "config": config}).variant(ALL)
        assert found.backward is not None
        for question in asked:
            role, _, choice = question.split("/", 2)
            executable = {"forward": found.forward, "backward": found.backward}[role]
            assert executable.lowered.schedule[choice] == expected
            position = 1 + executable.lowered.signature.index(argument(choice))
            assert executable.prepare(graph()).arguments[position] == expected


def renamed(folder: Path) -> FunctionType:
    function = function_of(SOURCE.replace("def tiny", "def small") + "\ntiny = small\n", folder)
    assert function.__name__ == "small"
    return function


@pytest.mark.parametrize("what", OTHER)
def test_other_circumstances(what: str, given: Circumstances, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    other = new_program(**{**given, **OTHER[what](given, tmp_path)})
    with pytest.raises(AssertionError, match="compiled again"):
        other.variant(ALL)


def test_another_mask(given: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    program = new_program(**given)
    program.variant(ALL)
    with pytest.raises(AssertionError, match="compiled again"):
        program.variant((True, True, True, False))


def test_another_version_of_the_compiler(given: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    monkeypatch.setattr(plan_cache, "_VERSIONS", "other")
    with pytest.raises(AssertionError, match="compiled again"):
        new_program(**given).variant(ALL)


def test_other_settings_of_the_compiler(given: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    with set_temporary("compiler", "cpu", "args", value="-O1"), pytest.raises(AssertionError, match="compiled again"):
        new_program(**given).variant(ALL)


def test_comments_and_order_of_definitions_do_not_matter(
    given: Circumstances, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch)
    helper, main_function = SOURCE.split("\n\n")
    text = f"{main_function}\n\n# a comment\n{helper}\n"
    new_program(**{**given, "program": program_of(text, tmp_path)}).variant(ALL)


def test_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    package = Path(str(dacergnn.__file__)).parent
    copy = tmp_path / "dacergnn"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "*.h"))
    expected = plan_cache.digest_sources(package)
    for other in ("bench/measure.py", "tuning/collect.py"):
        (copy / other).write_text("")
    assert plan_cache.digest_sources(copy) == expected
    seen = {expected}
    compiler = (
        *("sdfg_passes/new.py", "program/parser.py", "runtime/lower.py", "graph/spaces.py"),
        *("cost.py", "target.py", "modules/sparse.py"),
    )
    for name in (*compiler, "tuning/search.py", "tuning/model.npz"):
        with (copy / name).open("a") as file:
            file.write("\n")
        seen.add(plan_cache.digest_sources(copy))
    assert len(seen) == 3 + len(compiler)


def test_digest_covers_what_compiling_imports() -> None:
    imports = grimp.build_graph("dacergnn")
    roots = ("sdfg_passes.compilation", "runtime.lower", "modules.sparse")
    read, tuned = (
        {name for root in some for name in (f"dacergnn.{root}", *imports.find_upstream_modules(f"dacergnn.{root}"))}
        for some in (roots, ("tuning.tuned",))
    )
    assert {n for n in tuned if ".tuning." in n} == {f"dacergnn.tuning.{name}" for name in plan_cache._TUNING}
    covered = tuple(f"dacergnn.{source.removesuffix('.py').replace('/', '.')}" for source in plan_cache._SOURCES)
    others = {name for name in read if not any(f"{name}.".startswith(f"{source}.") for source in covered)}
    without_code = {"dacergnn.errors", "dacergnn.runtime.free_memory", "dacergnn.scratch"}
    assert {name for name in others if not name.startswith("dacergnn.native")} <= without_code


def truncate(file: Path) -> None:
    file.write_text(file.read_text()[:200])


def other_json(file: Path) -> None:
    file.write_text("[1]")


def other_code(file: Path) -> None:
    text = file.read_text()
    assert "#include" in text
    file.write_text(text.replace("#include", "#exclude", 1))


def no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("damage", [truncate, other_json, other_code, no_text])
def test_damaged_plan_is_made_again(
    damage: Callable[[Path], None], given: Circumstances, caplog: pytest.LogCaptureFixture
) -> None:
    (plan,) = cache.plans()
    whole = plan.path.read_text()
    damage(plan.path)
    with caplog.at_level(logging.WARNING, "dacergnn"):
        new_program(**given).variant(ALL)
    assert caplog.messages == [f"cache entry {plan.path} is damaged; compiling the program again"]
    assert plan.path.read_text() == whole


def test_library_that_is_gone_is_built_again(given: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in cache.entries():
        if entry.name.startswith("tiny"):
            shutil.rmtree(entry.path)
    forbid(monkeypatch, compiler=False)
    new_program(**given).variant(ALL)
    assert sorted(entry.name for entry in cache.entries() if entry.name.startswith("tiny")) == ["tiny", "tiny_backward"]


def test_cache_that_is_a_file(given: Circumstances, folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.raises(CacheError, match=r"cannot be written \(File exists\); set DACERGNN_CACHE_DIR"):
        new_program(**given).variant(ALL)


def test_cache_that_can_only_be_read(
    given: Circumstances, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With libraries in place there is no need to write."""

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (plan,) = cache.plans()
    plan.path.unlink()
    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    with caplog.at_level(logging.INFO, "dacergnn.cache"):
        new_program(**given).variant(ALL)
    assert caplog.messages == [f"the plan of tiny cannot be kept in {plan.path.parent} (Permission denied)"]
    assert cache.plans() == []


@pytest.mark.usefixtures("folder")
def test_program_that_cannot_be_compiled_leaves_nothing(given: Circumstances, tmp_path: Path) -> None:
    wrong = new_program(**{**given, "program": program_of(SOURCE.replace("e.src.x", "e.src.y"), tmp_path)})
    with pytest.raises(ProgramError, match='"y" has no value over NS here'):
        wrong.variant(ALL)
    assert len(cache.plans()) == 1


def test_steps_are_made_when_asked_for(given: Circumstances, tmp_path: Path) -> None:
    program = new_program(**given)
    variant = program.variant(ALL)
    assert "sdfg" not in vars(program)
    names = [path.name for path in program.save(tmp_path / "steps")]
    assert names[0] == "00_frontend.sdfg"
    assert names[-1].endswith("_select_adjacency_backward.sdfg")
    assert variant.compilation is variant.compilation
    assert variant.compilation.wrt == NAMES
    assert Program(variant.compilation.forward).outputs == [b.name for b in variant.forward.lowered.outputs]


@pytest.mark.parametrize("layer", [RGCN(3, 2, 2), RGAT(3, 2, 2), HGT(4, 1, 2)], ids=lambda layer: type(layer).__name__)
def test_inputs_are_known_without_parsing(layer: Any) -> None:
    program = new_program(layer.program(), torch.float32, torch.int32, Config(), TYPICAL)
    assert "sdfg" not in vars(program)
    assert program.inputs == Program(program.sdfg).inputs


@pytest.mark.usefixtures("folder")
def test_explain_and_save_sdfg_of_a_layer_from_the_cache(tmp_path: Path) -> None:
    layer, x = RGCN(3, 2, 2), torch.randn(5, 3)
    layer(x, graph()).sum().backward()
    expected = str(dacergnn.explain(layer))
    compiled_program.cache_clear()
    again = RGCN(3, 2, 2)
    with pytest.MonkeyPatch.context() as patch:
        forbid(patch)
        again(x, graph()).sum().backward()
    assert str(dacergnn.explain(again)) == expected
    assert len(again.save_sdfg(tmp_path / "steps")) > 5


def test_plans_are_listed_and_deleted_with_builds(folder: Path) -> None:
    runner = CliRunner()
    (plan,) = cache.plans()
    assert plan.name == "tiny"
    assert "tiny_" in runner.invoke(main, ["cache", "list"]).output
    assert ".plan.json" in runner.invoke(main, ["cache", "list"], env={"COLUMNS": "150"}).output
    count = len(cache.everything())
    assert count >= 4  # the plan, two builds and the headers of kernels
    assert runner.invoke(main, ["cache", "size"]).output.startswith(f"{count} builds, ")
    assert runner.invoke(main, ["cache", "clear", "--yes"]).output == f"Deleted {count} builds.\n"
    assert list(folder.iterdir()) == []
