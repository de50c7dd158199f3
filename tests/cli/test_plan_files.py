"""A plan as a file: what `tune run` writes, `explain`, `view` and `bench` read, in this process and in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dacergnn import Plan
from dacergnn.cli import main
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import load

LAYER = ("--model", "rgat", "--data", "am~0.001", "--features", "8")
TILES = "forward/select_schedule/tmp/tile_rows"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "250"})


REPLAY = """
import sys
from dacergnn import Plan
from dacergnn.cli.named_layers import compiled_layer
from dacergnn.modules import lowered_program
from dacergnn.native import build
lowered_program.compile_program = lowered_program.lower = build._compile = None
layer = compiled_layer("rgat", "am~0.001", 8, 1, Plan.load(sys.argv[1]))
role, _, choice = sys.argv[2].split("/", 2)
print(*(getattr(v, role).lowered.schedule[choice] for v in layer.last_call[0].variants))
"""


@pytest.mark.check
def test_one_file_for_all_commands(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    found = run("tune", "run", *LAYER, "--depth", "1", "--evaluations", "2", "--top", "1", "--out", str(file))
    assert found.exit_code == 0, found.output
    answers = json.loads(file.read_text())
    assert answers["implementation"] == "cpu"
    tiles = next(q for q in answers if q.endswith("/tile_rows"))
    answers[tiles] = "64"
    file.write_text(json.dumps(answers))

    explained = run("explain", *LAYER, "--plan", str(file), "--verbose")
    assert explained.exit_code == 0, explained.output
    shown = explained.output.splitlines()
    assert f"      {tiles}: 64 (64, 256, 1024, 4096)" in shown
    for question, answer in answers.items():
        assert any(line.startswith(f"      {question}: {answer} (") for line in shown), question

    root = Path(__file__).parents[2]
    replayed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REPLAY, str(file), tiles],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert replayed.stdout == "64\n", replayed.stderr

    pytest.importorskip("torch_geometric")
    options = ("--mode", "train", "--no-memory", "--repeat", "1", "--budget", "0.1")
    report = tmp_path / "report.jsonl"
    measured = run("bench", *LAYER, *options, "--plan", str(file), "--json", str(report))
    assert measured.exit_code == 0, measured.output
    about, *rows = load(report)
    assert Plan.from_json(about["plan"]) == Plan.load(file)
    assert [row["status"] for row in rows] == ["ok", "ok"]


def test_steps_by_a_plan(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "sdfg"
    Plan.of({"(model)": {TILES: "64"}}).save(file)
    viewed = run("view", *LAYER, "--plan", str(file), "--out", str(out), "--no-open")
    assert viewed.exit_code == 0, viewed.output
    (last,) = out.glob("*_select_adjacency.sdfg")
    nodes = json.loads(last.read_text())["nodes"][0]["nodes"]
    assert "64" in [n["attributes"].get("tile_rows") for n in nodes]


@pytest.mark.parametrize("command", [("explain",), ("view", "--no-open"), ("bench", "--layer", "rgcn")])
def test_files_that_are_no_plans(command: tuple[str, ...], tmp_path: Path) -> None:
    for text, problem in (
        (None, "it cannot be read: No such file or directory; name a file that Plan.save or dacergnn tune run wrote."),
        ("{", "plan: Expecting property name"),
        ("[]", "plan: '[]' is no object of answers by question."),
        ('{"a": "b", "a": "c"}', 'plan: "a" is answered twice.'),
        ('{"a": null}', 'plan: the answer to "a" is None; give one of its options as text.'),
        ('{"conv": {"a": {"b": "c"}}}', 'plan: layer "conv" has layers of its own; give it answers by question.'),
        ("\ufeff\udcff", "it holds no text; name a file"),
    ):
        file = tmp_path / "plan.json"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_bytes(text.encode(errors="surrogateescape"))
        result = run(*command, "--plan", str(file))
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: {file}: {problem}"), result.output


def test_plans_that_do_not_fit() -> None:
    result = run("tune", "run", *LAYER, "--out", "no/such/plan.json")
    assert result.output == "Error: --out: there is no folder no/such; make it, or name a file elsewhere.\n"
    with pytest.raises(DacergnnError, match=r"^plan: no/such/plan.json cannot be written: No such file or directory."):
        Plan().save("no/such/plan.json")


def test_questions_that_a_layer_does_not_ask(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for name, problem in (("nobody", 'plan: nothing asks "nobody" of this program'), ("conv", 'plan: no layer "conv"')):
        file.write_text(json.dumps({name: {"nobody": "1"}} if name == "conv" else {name: "1"}))
        result = run("explain", *LAYER, "--plan", str(file))
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: {problem}")
