"""scripts/gpu_check.sh without a device: its plan, its limits, what it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import install_wheels, make_wheels

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"
STEPS = [
    *("install", "first", "build", "tests", "alone", "bench", "memcheck", "racecheck", "kernels"),
    *("tf32", "bfloat16", "compiled"),
]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


def check(*arguments: str, python: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables | ({"PYTHON": str(python)} if python else {})
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], capture_output=True, text=True, check=False, env=environment
    )


def planned(*arguments: str) -> dict[str, str]:
    """What a dry run says that it would run, by step."""
    done = check("--wheels", "wheels", "--out", "out", "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    return {line.split(" ")[0]: line.partition(": ")[2] for line in done.stdout.splitlines()}


def test_steps_come_in_order_of_worth() -> None:
    plan = planned()
    assert list(plan) == STEPS
    assert "tests/gpu/test_layers.py -k same_as_on_the_processor" in plan["first"]
    assert plan["racecheck"].count("--tool racecheck") == 1
    assert "--time-limit 520" in plan["bench"]
    for line in plan.values():
        for word in line.split():
            if "/" in word and word.startswith(("tests/", str(SCRIPT.parents[1]))):
                assert (SCRIPT.parents[1] / word).exists(), word


def test_steps_can_be_chosen() -> None:
    assert list(planned("--steps", "install,bench")) == ["install", "bench"]
    quick = planned("--quick")
    assert list(quick) == STEPS[:9]
    assert "--data aifb,fb15k,am " in quick["bench"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wheel", "w"], "unknown option '--wheel'"),
        (["--wheels", "w"], "--wheels and --out are needed"),
        (["--wheels", "/nowhere", "--out", "o"], "no folder '/nowhere'"),
        (["--wheels", "w", "--out", "o", "--minutes", "ten"], "--minutes 'ten' is no whole number"),
        (["--wheels", "w", "--out", "o", "--steps", "bench,all", "--dry-run"], "no step 'all'"),
    ],
)
def test_bad_options(arguments: list[str], message: str) -> None:
    done = check(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_kernels_of_all_steps_are_built() -> None:
    done = check("--wheels", "wheels", "--out", "out", "--dry-run", "--steps", "build")
    assert [line.partition("--build ")[2][:16] for line in done.stdout.splitlines()] == [
        "--data aifb,fb15", "--dtype tf32 --d", "--dtype bfloat16",
    ]  # fmt: skip


def stand_in(folder: Path, body: str) -> Path:
    """A program in place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_failing_step_does_not_end_the_others(tmp_path: Path) -> None:
    python = stand_in(tmp_path, 'echo "$@"; case "$*" in *gpu.py*) exit 3;; esac')
    out = tmp_path / "out"
    options = ["--wheels", str(tmp_path), "--out", str(out), "--work", str(tmp_path / "work")]
    done = check(*options, "--steps", "install,build,tests,bench,kernels", python=python)
    assert done.returncode == 1
    summary = (out / "summary.txt").read_text()
    assert "install: ok" in summary
    assert "build: FAILED" in summary
    assert "tests: ok" in summary
    assert "bench: FAILED with 3" in summary
    assert "kernels: ok" in summary
    assert "package: -c import dacergnn; print(dacergnn.__file__)" in summary
    assert "-m not alone" in (out / "tests.log").read_text()
    assert len(list(out.iterdir())) <= 7
    ended = check(*options, "--steps", "bench", "--minutes", "0", python=python)
    assert ended.returncode == 1
    assert "bench: left out, no time" in ended.stdout
    assert check(*options, "--steps", "tests", python=python).returncode == 0


def test_a_device_that_sanitizers_cannot_attach_to_is_no_failure(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "")
    options = ["--wheels", str(tmp_path), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    tools = tmp_path / "tools"
    tools.mkdir()
    for code, ending, status in ((1, "not possible here; see sanitizer.log", 0), (0, "ok, ", 0)):
        (tools / "compute-sanitizer").write_text(f"#!/bin/sh\nexit {code}\n")
        (tools / "compute-sanitizer").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        done = check(*options, "--steps", "memcheck", python=python, PATH=path)
        assert done.returncode == status
        assert f"memcheck: {ending}" in done.stdout


def test_the_package_is_the_installed_one(tmp_path: Path) -> None:
    """Python looks into the checkout last, and finds the tests there."""
    (tmp_path / "site" / "dacergnn").mkdir(parents=True)
    (tmp_path / "site" / "dacergnn" / "__init__.py").touch()
    lines = [line for line in SCRIPT.read_text().splitlines() if line.startswith("export PYTHONSAFEPATH")]
    code = "import dacergnn, tests; print(dacergnn.__file__, tests.__path__[0])"
    script = f"work={tmp_path} root={SCRIPT.parents[1]}\n{lines[0]}\n'{sys.executable}' -m code"
    found = subprocess.run(
        ["bash", "-c", script], input=code, capture_output=True, text=True, check=True, cwd=SCRIPT.parents[1]
    ).stdout
    assert f"{tmp_path}/site/dacergnn/__init__.py {SCRIPT.parents[1]}/tests" in found


def test_what_is_there_already_is_not_installed(tmp_path: Path) -> None:
    for name in ("dacergnn-0.1.0", "dace-2.0.0b1", "numpy-1.0", "no_such_package-3.1"):
        (tmp_path / f"{name}-py3-none-any.whl").touch()
    assert [p.name.split("-")[0] for p in install_wheels.wanted(tmp_path)] == ["dacergnn", "no_such_package"]
    (tmp_path / "dace-2.0.0b1-py3-none-any.whl").rename(tmp_path / "dace-1.0-py3-none-any.whl")
    assert "dace" in [p.name.split("-")[0] for p in install_wheels.wanted(tmp_path)]
    (tmp_path / "dace-1.0-py3-none-any.whl").unlink()
    with pytest.raises(SystemExit, match="has no wheel of dace; make the folder with 'make wheels'"):
        install_wheels.wanted(tmp_path)


def test_wheels_are_of_everything_but_torch() -> None:
    pinned, others = make_wheels.requirements()
    assert [name.split("=")[0] for name in pinned] == ["dace"]
    assert not any(name.startswith("torch") and not name.startswith("torch_geometric") for name in others)
    assert {"numpy", "scipy", "platformdirs"} <= set(others)
