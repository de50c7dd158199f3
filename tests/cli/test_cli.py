"""The commands, through click's runner."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from dacergnn import datasets
from dacergnn.bench.environment import compiler, cpu_facts
from dacergnn.cli import COMMANDS, main
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError, GraphError
from dacergnn.native.build import compiler as found_compiler
from dacergnn.native.cache import LIBRARY, store


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in result.output
        assert line.split()[0] in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_has_help(name: str) -> None:
    module, attribute = COMMANDS[name][0].split(":")
    assert isinstance(getattr(importlib.import_module(module), attribute), click.Command)
    assert run(name, "--help").exit_code == 0


def test_version() -> None:
    assert run("--version").output.startswith("dacergnn, version ")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("cache", "path")])
def test_what_needs_no_model_imports_neither_torch_nor_dace(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dacergnn", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert "dacergnn.cli" in imported
    assert not imported & {"torch", "dace", "numpy"}


def test_a_process_of_the_command_line_finds_what_the_package_offers() -> None:
    script = (
        "import sys; sys.orig_argv[-1:] = sys.argv[:] = ['/bin/dacergnn']; import dacergnn; "
        "assert 'torch' not in sys.modules; "
        "print(dacergnn.Plan.__name__, dacergnn.datasets.__name__, hasattr(dacergnn, 'none'))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "Plan dacergnn.datasets False\n"


def test_an_unknown_command_names_the_known_ones() -> None:
    result = run("explode")
    assert result.exit_code == 2
    assert "There is no command 'explode'; the commands are bench, cache" in result.output


def test_errors_of_the_package_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise GraphError("edge_index[0, 7] is -1; remove the edge.")

    monkeypatch.setattr("dacergnn.cli.named_layers.compiled_layer", fail)
    result = run("explain", "--model", "rgat")
    assert result.exit_code == 1
    assert result.output == "Error: edge_index[0, 7] is -1; remove the edge.\n"


# --- env


def test_env_shows_versions_and_processor() -> None:
    facts = json.loads(run("env", "--no-rates", "--json").output)
    assert facts["dace"] == "2.0.0b1"
    assert facts["cores"] >= 1
    assert re.fullmatch(r"cpu, vectors of (16|32|64) bytes(, pairs of bfloat16)?", facts["kernels"])
    assert "torch" in run("env", "--no-rates").output


def test_env_measures_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacergnn.cli.env.measure_rates", lambda device: Rates(98.7e9, 12.34e9, 20e9, 5e8))
    facts = json.loads(run("env", "--json").output)
    rates = "flops=9.87e+10, streamed=1.234e+10, gathered=2e+10, rows=5e+08"
    assert facts["to compile by"] == f"Config(rates=Rates({rates}))"
    assert facts["copy bandwidth"] == "12.3 GB/s"
    assert facts["gathered rows"] == "500 million/s"
    assert facts["GEMM rate"] == "99 GFLOP/s"


def test_env_measures_and_saves_the_rates_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, path = list[str](), tmp_path / "rates.json"
    measured = Rates(4e13, 3e12, 6e12, 1e11)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a device")
    monkeypatch.setattr("dacergnn.cli.env.measure_rates", lambda device: asked.append(device) or measured)
    assert run("env", "--device", "cuda", "--save", str(path)).exit_code == 0
    assert asked == ["cuda"]
    assert Rates.load(path) == measured
    refused = run("env", "--no-rates", "--save", str(path))
    assert refused.exit_code == 2
    assert "--save writes the rates that --no-rates leaves out; leave one of the two out." in refused.output


def test_files_without_rates(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    with pytest.raises(DacergnnError, match=r"rates: .*rates.json holds none; name a file that Rates.save"):
        Rates.load(path)
    for text in ("[]", "{", '{"flops": 1}', '{"flops": 0, "streamed": 1, "gathered": 1, "rows": 1}'):
        path.write_text(text)
        with pytest.raises(DacergnnError, match=r"rates: .*rates.json holds none"):
            Rates.load(path)
    with pytest.raises(DacergnnError, match=r"rates: .* cannot be written: "):
        Rates(1, 1, 1, 1).save(tmp_path / "no folder" / "rates.json")


def test_cpu_facts_reads_the_first_processor_only(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("model name\t: A\nflags\t\t: fpu avx2 fma\n\nmodel name\t: B\nflags\t\t: avx512f\n")
    assert cpu_facts(file) == ("A", "avx2 fma")
    assert cpu_facts(tmp_path / "none") == ("", "")


def test_cpu_facts_of_arm(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\n")
    assert cpu_facts(file) == ("ARM, implementer 0x41, part 0xd40", "asimd bf16")


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacergnn.bench.environment.found_compiler", found_compiler.__wrapped__)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiler().startswith('The C++ compiler "no-such-compiler" is not on PATH; install g++')


# --- cache


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_absent_cache_is_empty(cache_dir: Path) -> None:
    assert run("cache", "path").output.strip() == str(cache_dir)
    assert "No builds" in run("cache", "list").output
    assert run("cache", "size").output.startswith("0 builds, 0.0 MB")
    assert run("cache", "clear").output == "Deleted 0 builds.\n"


def write_library(folder: Path) -> None:
    (folder / LIBRARY).write_bytes(bytes(2_500_000))


def test_builds_are_listed_counted_and_deleted(cache_dir: Path) -> None:
    store("1a2b", "rgat", write_library)
    assert "rgat_1a2b" in run("cache", "list").output
    assert run("cache", "size").output.startswith("1 builds, 2.5 MB")
    assert run("cache", "clear", input="n\n").exit_code == 1
    assert cache_dir.joinpath("rgat_1a2b").exists()
    assert "Deleted 1 builds" in run("cache", "clear", "--yes").output
    assert not list(cache_dir.iterdir())


def test_a_list_of_builds_is_not_cut(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = "a_program_with_a_name_longer_than_most"
    store("1a2b3c4d5e6f", name, write_library)
    (line,) = run("cache", "list").output.splitlines()
    assert line.endswith(f"  {name}_1a2b3c4d5e6f")


def test_builds_that_cannot_be_deleted_are_told(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store("1a2b", "rgat", write_library)
    monkeypatch.setattr("dacergnn.native.cache.remove", lambda path: None)
    result = run("cache", "clear", "--yes")
    assert result.exit_code == 1
    assert "Deleted 0 builds" in result.output
    assert f"1 builds in {cache_dir} cannot be deleted; have their owner do so." in result.output


# --- view


def test_view_opens_the_page_and_on_request_daces_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("click.launch", opened.append)
    monkeypatch.delenv("TERM_PROGRAM", raising=False)
    monkeypatch.setattr("dace.cli.sdfv.view", lambda text, file, verbose: opened.append(Path(file).name))
    options = ("view", "--model", "rgcn", "--data", "am~0.001", "--features", "8", "--out", str(tmp_path))
    page = str(tmp_path / "steps.html")
    shown = run(*options, "--dace")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert Path(lines[0]).name == "00_frontend.sdfg"
    assert lines[-1] == page
    running = ["18_select_adjacency.sdfg", "18_select_adjacency_backward.sdfg"]
    assert opened == [page, *running]
    assert run(*options, "--no-open").exit_code == 0
    assert len(opened) == 3
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("subprocess.run", lambda command, check: opened.extend(map(str, command)))
    assert run(*options, "--no-open", "--dace").exit_code == 0
    assert opened[3:] == ["/bin/code", *(str(tmp_path / name) for name in running)]
    text = Path(page).read_text(encoding="utf-8")
    assert f"<b>E</b> {datasets.resolve('am~0.001').graph.size('E'):,} edges" in text
