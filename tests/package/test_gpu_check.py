"""scripts/gpu_check.sh without a device: its plan, its limits, what it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import gpu_look, install_wheels, make_wheels

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"
STEPS = [
    *("install", "rates", "first", "bench", "profile", "tests", "alone", "memcheck", "racecheck", "kernels"),
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
    done = check("--out", "out", "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    return {line.split(" ")[0]: line.partition(": ")[2] for line in done.stdout.splitlines()}


def words_after(line: str, option: str) -> str:
    words = line.split()
    return words[words.index(option) + 1]


def test_steps_come_in_order_of_worth() -> None:
    plan = planned()
    assert list(plan) == STEPS
    assert "tests/gpu/test_layers.py -k same_as_on_the_processor" in plan["first"]
    assert plan["rates"].endswith("env --device cuda --save /tmp/dacergnn_gpu_check/results/rates.json")
    assert plan["racecheck"].count("--tool racecheck") == 1
    assert words_after(plan["bench"], "--data") == "mag~,am~,wikikg2~,bgs~,biokg~,fb15k~,aifb~,mutag~"
    assert "--time-limit 515" in plan["bench"]
    assert "--build-ahead" in plan["bfloat16"]
    for name, line in plan.items():
        for word in line.split() if name != "profile" else ():
            if "/" in word and word.startswith(("tests/", str(SCRIPT.parents[1]))) and "build" not in word:
                assert (SCRIPT.parents[1] / word).exists(), word
    kept = "/tmp/dacergnn_gpu_check/results/profile"
    expected = (
        f"-m benchmarks gpu_profile --json {kept}.jsonl --markdown {kept}.md --data aifb,mag,am,fb15k --time-limit"
    )
    assert f"{expected} 275" in plan["profile"]


def test_steps_can_be_chosen() -> None:
    assert list(planned("--steps", "profile,install,bench")) == ["profile", "install", "bench"]
    quick = planned("--quick")
    assert list(quick) == STEPS[:10]
    assert "--data am~,fb15k~,aifb~ " in quick["bench"]
    assert "--time-limit 95" in planned("--minutes", "2")["bench"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wheel", "w"], "unknown option '--wheel'"),
        (["--wheels", "/nowhere", "--out", "o"], "no folder '/nowhere'"),
        (["--minutes", "ten"], "--minutes 'ten' is no whole number"),
        (["--steps", "bench,all", "--dry-run"], "no step 'all'"),
    ],
)
def test_bad_options(arguments: list[str], message: str) -> None:
    done = check(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_documented_calls_run_every_step() -> None:
    """Each is one line that a machine takes, with its folder of results in a variable."""
    text = (SCRIPT.parents[1] / "docs" / "gpu.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith('scripts/gpu_check.sh --out "$OUT"')]
    assert len(lines) == 5
    named = [list(planned(*line.split("#")[0].split()[3:])) for line in lines]
    assert {name for call in named for name in call} == set(STEPS)
    assert all(len(line) < 2000 for line in lines)


def stand_in(folder: Path, body: str) -> Path:
    """A program in place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "wheels").mkdir()
    return ["--wheels", str(tmp_path / "wheels"), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]


def test_a_failing_step_does_not_end_the_others(tmp_path: Path, options: list[str]) -> None:
    python = stand_in(tmp_path, 'echo "$@"; case "$*" in *" relational "*) exit 3;; esac')
    done = check(*options, "--steps", "install,tests,bench,kernels", python=python)
    assert done.returncode == 1
    out = tmp_path / "out"
    summary = (out / "summary.txt").read_text()
    assert "install: ok" in summary
    assert "tests: ok" in summary
    assert "bench: FAILED with 3" in summary
    assert "kernels: ok" in summary
    assert "package: -c import dacergnn; print(dacergnn.__file__)" in summary
    assert summary.index("gpu_look.py") < summary.index("install: ok")
    assert "-m not alone" in (out / "tests.log").read_text()
    ended = check(*options, "--steps", "bench", "--minutes", "0", python=python)
    assert ended.returncode == 1
    assert "bench: left out, no time" in ended.stdout
    assert check(*options, "--steps", "tests", python=python).returncode == 0


def test_a_later_call_goes_on(tmp_path: Path, options: list[str]) -> None:
    """The folder of results is empty at each call; what was found before comes back with every one."""
    python = stand_in(
        tmp_path,
        f"""
case "$*" in
  *--save*) echo rates > {tmp_path}/work/results/rates.json ;;
  *" relational "*"--dtype tf32"*) exit 75 ;;
  *" relational "*) echo "$*" >> {tmp_path}/work/results/bench.jsonl ;;
esac""",
    )
    first = check(*options, "--steps", "bench,rates,tf32", python=python)
    assert "install: ok" in first.stdout  # before all others, though nobody has named it
    assert "tf32: cases are left after" in first.stdout
    shutil.rmtree(tmp_path / "out")
    second = check(*options, python=python)
    assert second.returncode == 1
    assert "\nbench:" not in second.stdout
    assert "\ninstall:" not in second.stdout
    assert "\nrates:" not in second.stdout
    assert "\nprofile: ok" in second.stdout
    assert "\ntf32: cases are left after" in second.stdout
    runs = (tmp_path / "out" / "bench.jsonl").read_text().splitlines()
    assert len(runs) == 3  # of the first call, then bfloat16 and compiled
    assert "--rates" not in runs[0]
    assert f"--rates {tmp_path}/work/results/rates.json" in runs[-1]
    assert len(list((tmp_path / "out").iterdir())) <= 8
    third = check(*options, "--steps", "bench", python=python)
    assert "bench: ok" in third.stdout
    assert "not all ok" not in third.stdout


def test_results_are_copied_when_a_call_is_ended(tmp_path: Path, options: list[str]) -> None:
    python = stand_in(tmp_path, f'case "$*" in *" relational "*) touch {tmp_path}/begun; exec sleep 60;; esac')
    command = ["bash", str(SCRIPT), *options, "--steps", "bench"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHON": str(python)}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 1
    assert "ended from outside" in (tmp_path / "out" / "summary.txt").read_text()


def test_without_packages_nothing_runs(tmp_path: Path, options: list[str]) -> None:
    python = stand_in(tmp_path, 'case "$*" in *install_wheels*) exit 5;; esac')
    done = check(*options, python=python)
    assert done.returncode == 1
    assert "install: FAILED with 5" in done.stdout
    assert "first" not in done.stdout
    python = stand_in(tmp_path, 'case "$*" in *gpu_look*) echo missing: torch; exit 1;; esac')
    done = check(*options, python=python)
    assert done.returncode == 1
    assert "missing: torch" in done.stdout
    assert "install" not in done.stdout


def test_what_is_missing_is_said_with_its_remedy() -> None:
    everything = dict.fromkeys(gpu_look.NEEDED, "1.0")
    assert gpu_look.missing(everything, "/usr/bin/nvcc", [], "312") == ("", True)
    lacking = everything | {"numpy": None, "scipy": None}
    wheels = ["scipy-1.18.1-cp312-cp312-manylinux_2_28_x86_64.whl", "psutil-7.2.2-cp36-abi3-manylinux2010_x86_64.whl"]
    assert gpu_look.missing(lacking, None, wheels, "312") == (
        "missing: numpy (make the wheels without naming it in WITHOUT); scipy (comes from the wheels); nvcc (install a "
        "CUDA toolkit from 12.0 up, or make the wheels WITH=cuda; no layer of ours runs without it)",
        True,
    )
    nvcc = ["nvidia_cuda_nvcc-13.5.37-py3-none-manylinux2014_x86_64.whl"]
    assert gpu_look.missing(everything, None, nvcc, "312") == ("missing: nvcc (comes from the wheels)", True)
    told, usable = gpu_look.missing(everything | {"torch": None, "pip": None}, "nvcc", wheels, "311")
    assert not usable
    assert told == (
        "missing: torch (install a build with CUDA; nothing runs without it); pip (install it, to install the wheels); "
        "wheels for this Python (make the wheels WHEELS_PYTHON=3.11)"
    )


def test_a_device_that_sanitizers_cannot_attach_to_is_no_failure(tmp_path: Path, options: list[str]) -> None:
    python = stand_in(tmp_path, "")
    tools = tmp_path / "tools"
    tools.mkdir()
    for code, ending in ((1, "not possible here; see tests.log"), (0, "ok, ")):
        (tools / "compute-sanitizer").write_text(f"#!/bin/sh\nexit {code}\n")
        (tools / "compute-sanitizer").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        done = check(*options, "--steps", "memcheck", python=python, PATH=path)
        assert done.returncode == 0
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


def test_a_compiler_is_installed_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dacergnn-0.1.0", "dace-2.0.0b1", "nvidia_cuda_nvcc-13.5", "nvidia_cuda_runtime-13.5"):
        (tmp_path / f"{name}-py3-none-any.whl").touch()
    for compiler, expected in (("nvcc", 0), (None, 2)):
        monkeypatch.setattr(install_wheels, "nvcc", lambda compiler=compiler: compiler)
        names = [path.name for path in install_wheels.wanted(tmp_path)]
        assert sum(name.startswith("nvidia") for name in names) == expected


def test_wheels_are_of_everything_but_torch() -> None:
    pinned, others = make_wheels.requirements()
    assert [name.split("=")[0] for name in pinned] == ["dace"]
    assert not any(name.startswith("torch") and not name.startswith("torch_geometric") for name in others)
    assert {"numpy", "scipy", "platformdirs"} <= set(others)
    assert not any(name.startswith("nvidia") for name in others)
    assert {"nvidia-cuda-nvcc", "nvidia-cuda-cccl"} <= {
        name.split(">")[0] for name in make_wheels.requirements(["cuda"])[1]
    }
    with pytest.raises(SystemExit, match="WITH=gpu: the package has no such extra; choose from pyg, dgl, cuda"):
        make_wheels.requirements(["gpu"])
