"""Saved SDFGs as DaCe's extension for VS Code (1.9.0) reads them, by its rules, and as DaCe does."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import dace
import jinja2
import pytest
from dace.codegen.instrumentation.report import InstrumentationReport
from PIL import Image

from dacergnn.graph import ROW_SPACES
from dacergnn.library_nodes.node import ordered_operators
from dacergnn.library_nodes.place import Place
from dacergnn.profiling.instrumentation import MeasuredProgram, write_programs
from dacergnn.program import Program
from dacergnn.program.view import SYMBOLS
from dacergnn.viewer import write_sdfg
from tests.modules import functions
from tests.modules.test_source_places import save_function
from tests.support.chromium import shown
from tests.viewer.steps import ATTENTION, LEARNED, steps_of_program

VIEWER = Path(dace.__file__).parent / "viewer"


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(item)


def told(sdfg: dace.SDFG) -> Any:
    """Returns what DaCe writes of an SDFG, without what is made anew for each."""
    content = json.loads(json.dumps(sdfg.to_json()))
    for part in parts(content):
        part.pop("guid", None)
        part.pop("hash", None)
    return content


def selected(info: dict[str, Any]) -> str:
    """The text that *Go to source* selects; lines of ``info`` count from 1, those of the editor from 0."""
    path = Path(info["filename"])
    assert path.is_absolute()  # others are looked for in the folders that are open
    lines = path.read_text().splitlines(keepends=True)
    end = [lines[info["end_line"]][: info["end_column"]]] if info["end_line"] < len(lines) else []
    return "".join(lines[info["start_line"] - 1 : info["end_line"]] + end)[info["start_column"] :]


def test_go_to_source(tmp_path: Path) -> None:
    for path in save_function(tmp_path):
        content = json.loads(path.read_text())
        places = [part["debuginfo"] for part in parts(content) if "debuginfo" in part]
        assert {place["filename"] for place in places} == {functions.__file__}
        assert all(selected(place).strip() for place in places)
        nodes = [node["attributes"] for node in content["nodes"][0]["nodes"] if node["type"] == "LibraryNode"]
        assert len(places) > len(nodes) > 0
        texts = {node["name"]: selected(node["debuginfo"]) for node in nodes}
        assert path.name != "00_frontend.sdfg" or texts["out"].startswith('sum(exp(e["att"]) * e["message"]')


def test_files_are_known_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows some by the way from the folder in which it runs."""
    monkeypatch.chdir(Path(functions.__file__).parent)
    sdfg = dace.SDFG("places")
    sdfg.add_state().add_access(sdfg.add_array("x", [1], dace.float32)[0]).debuginfo = Place(
        "functions.py", 3
    ).debuginfo
    write_sdfg(sdfg, tmp_path / "places.sdfg")
    (place,) = {p["filename"] for p in parts(json.loads((tmp_path / "places.sdfg").read_text())) if "filename" in p}
    assert place == functions.__file__


def test_sizes_are_expressions_of_symbols(tmp_path: Path) -> None:
    """Labels show them, and overlays compute them from the values that the user gives to the names in ``symbols``."""
    for path in save_function(tmp_path):
        content = json.loads(path.read_text())
        keys = ("volume", "num_accesses", "total_size", "start", "end")
        sizes = [part[key] for part in parts(content) for key in keys if isinstance(part.get(key), str)]
        arrays = [array["attributes"] for array in content["attributes"]["_arrays"].values()]
        sizes += [size for array in arrays for size in (*array["shape"], *array["strides"])]
        names = {node.id for size in sizes for node in ast.walk(ast.parse(size)) if isinstance(node, ast.Name)}
        assert {"NS", "R"} <= names <= content["attributes"]["symbols"].keys()
        assert "$" not in path.read_text()


@pytest.mark.parametrize("role", ["forward", "backward"])
def test_dace_reads_what_it_would_have_written(role: str, tmp_path: Path) -> None:
    path = tmp_path / "step.sdfg"
    for step in steps_of_program(ATTENTION, LEARNED):
        if role in step.sdfgs:
            write_sdfg(step.sdfgs[role], path)
            assert told(dace.SDFG.from_file(str(path))) == told(step.sdfgs[role])


def test_dace_reads_every_row_space(tmp_path: Path) -> None:
    """Some are names that SymPy knows as something else."""
    sdfg = dace.SDFG("spaces")
    sdfg.add_state()
    for space, symbol in SYMBOLS.items():
        sdfg.add_array(f"rows_{space}", [symbol, 2 * symbol + 1], dace.float32)
    write_sdfg(sdfg, tmp_path / "spaces.sdfg")
    assert len(sdfg.arrays) == len(ROW_SPACES) - 1
    assert told(dace.SDFG.from_file(str(tmp_path / "spaces.sdfg"))) == told(sdfg)


def measured(folder: Path) -> tuple[list[MeasuredProgram], list[Path]]:
    """Programs in files, with reports of two calls in which the first two operators have run together."""
    programs: list[MeasuredProgram] = []
    for sdfg in steps_of_program(ATTENTION, LEARNED)[-1].sdfgs.values():
        first, second, *others = ordered_operators(Program(sdfg).state)
        groups = [[first, second], *([o] for o in others)]
        calls = [(start, [start / 1e3 * (k + 1) for k in range(len(groups))]) for start in (1.0, 2.0)]
        programs.append(MeasuredProgram(sdfg, groups, calls))
    return programs, write_programs(programs, folder)


def durations(content: dict[str, Any], report: dict[str, Any]) -> dict[str, list[float]]:
    """The microseconds that the extension shows, by the label of the node that it shows them at."""
    found: dict[str, list[float]] = {}
    for event in report["traceEvents"]:
        if event["ph"] == "X":
            place = event["args"]
            found.setdefault(f"{place['sdfg_id']}/{place['state_id']}/{place['id']}/-1", []).append(event["dur"])
    nodes = [(state, node) for state in content["nodes"] for node in state["nodes"]]
    labels = {f"{content['cfg_list_id']}/{state['id']}/{node['id']}/-1": node["label"] for state, node in nodes}
    return {labels[place]: times for place, times in found.items()}


def test_reports(tmp_path: Path) -> None:
    for program, path in zip(*measured(tmp_path), strict=True):
        beside = path.with_suffix(".report.json")
        shown = durations(json.loads(path.read_text()), json.loads(beside.read_text()))
        numbers = {operator.label: k + 1 for k, group in enumerate(program.groups) for operator in group}
        assert shown == {label: pytest.approx([1e3 * k, 2e3 * k]) for label, k in numbers.items()}
        report: Any = InstrumentationReport(str(beside))
        sdfg = dace.SDFG.from_file(str(path))
        assert report.sdfg_hash == sdfg.hash_sdfg()
        nodes: list[Any] = next(iter(sdfg.states())).nodes()
        medians = {nodes[k].label: median(t[-1]) for (_, _, k), own in report.durations.items() for t in own.values()}
        assert medians == {label: pytest.approx(1.5 * k) for label, k in numbers.items()}


def test_programs_of_one_name(tmp_path: Path) -> None:
    (program, _), _ = measured(tmp_path)
    again = write_programs([program, program], tmp_path)
    assert len({*again}) == 2
    assert all(path.with_suffix(".report.json").is_file() for path in again)


def coloured(picture: bytes) -> list[bool]:
    """Tells whether there is a box in the colour of the shortest time, and one in that of the longest."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    seen: Any = image.getcolors(image.width * image.height)
    areas = [rgb for size, rgb in seen if size > 500]
    return [any(g > 240 > 170 > max(r, b) for r, g, b in areas), any(r > 240 > 170 > max(g, b) for r, g, b in areas)]


@pytest.mark.check
def test_daces_viewer_draws_files_and_their_times(tmp_path: Path) -> None:
    """The page that `sdfv FILE` opens, an older release of what the extension draws with.

    The icons' font is not in DaCe's package, so that its loading fails.
    """
    _, (_, path) = measured(tmp_path)
    folder = jinja2.Environment(loader=jinja2.FileSystemLoader(VIEWER / "templates"), autoescape=False)
    text = folder.get_template("sdfv.html").render(sdfg=json.dumps(path.read_text()), dir=f"{VIEWER}/")
    (tmp_path / "view.html").write_text(text, encoding="utf-8")
    report = path.with_suffix(".report.json").read_text()
    with shown(tmp_path / "view.html", tmp_path / "profile") as opened:
        labels = opened.value("""new Promise(done => { const wait = () => {
            const renderer = WebSDFV.getInstance().renderer;
            if (renderer && renderer.graph) done(renderer.sdfg.nodes[0].nodes.map(node => node.label));
            else setTimeout(wait, 50);
        }; wait(); })""")
        assert "grad_total = Σ grad_factor * factor over incoming edges  [ND]" in labels
        assert coloured(opened.picture()) == [False, False]
        opened.value(f"WebSDFV.getInstance().onLoadedRuntimeReport({report}), 0")
        for _ in range(50):
            if all(coloured(opened.picture())):
                break
        assert coloured(opened.picture()) == [True, True]
        assert [c for c in opened.complaints if "woff2" not in c and "WebGL" not in c] == []
