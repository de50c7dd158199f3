"""Commands without ``--data`` on machines that have no real graphs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks.batches.settings import DATA
from benchmarks.caching.settings import CachingSettings
from benchmarks.relational.settings import BenchSettings
from dacergnn import datasets
from dacergnn.cli import main
from dacergnn.cli.options import data_option, present
from dacergnn.datasets import loaders
from dacergnn.errors import DatasetError


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without real graphs."""
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "PACKAGED", tmp_path)
    monkeypatch.setattr(loaders, "_download_folder", lambda: tmp_path / "downloads")
    return tmp_path


def test_a_command_takes_the_synthetic_graph_and_says_so() -> None:
    result = CliRunner().invoke(main, ["explain", "--model", "rgcn", "--features", "4"])
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == (
        "aifb cannot be loaded on this machine: taking aifb~, a synthetic graph with its counts. "
        "Set DACERGNN_DATA to a folder with aifb.npz."
    )


def test_a_named_graph_is_never_replaced() -> None:
    result = CliRunner().invoke(main, ["explain", "--data", "mag_cut10"])
    assert result.exit_code == 1
    assert "Dataset 'mag_cut10' could not be loaded" in result.output


@pytest.mark.parametrize("names", [BenchSettings.data, CachingSettings.data, (DATA,), ("mutag", "fb15k237", "wn18rr")])
def test_every_default_has_a_stand_in(names: tuple[str, ...]) -> None:
    for name in names:
        assert datasets.load(f"{present(name).partition('~')[0]}~0.002").graph.size("E") > 0


def test_a_graph_that_libraries_download_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert present("mutag") == "mutag~"
    assert capsys.readouterr().err.endswith("mutag.npz, or name --data mutag to download it.\n")


def test_what_is_there_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "downloads" / "dgl" / "mutag").mkdir(parents=True)
    assert (present("aifb"), present("mutag")) == ("aifb~", "mutag~")
    (bare / "aifb.npz").touch()
    (bare / "downloads" / "dgl" / "mutag" / "graph.bin").touch()
    loaded: list[str] = []
    monkeypatch.setattr(datasets, "load", loaded.append)
    assert (present("aifb"), present("mutag")) == ("aifb", "mutag")
    assert loaded == ["aifb", "mutag"]


def test_damaged_files_are_told_and_replaced(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bare / "aifb.npz").write_bytes(b"no archive")
    assert present("aifb") == "aifb~"
    told = capsys.readouterr().err
    assert str(bare / "aifb.npz") in told
    assert "taking aifb~" in told


@pytest.mark.parametrize(
    ("defaults", "given", "expected"),
    [
        (("aifb",), [], "aifb~"),
        (("aifb",), ["--data", "am~0.1"], "am~0.1"),
        (("aifb", "bgs~"), [], ("aifb~", "bgs~")),
        (("aifb", "bgs~"), ["--data", "cora, am~"], ("cora", "am~")),
    ],
)
def test_lists_and_single_names(defaults: tuple[str, ...], given: list[str], expected: object) -> None:
    found: list[object] = []

    @click.command()
    @data_option(*defaults)
    def command(data: object) -> None:
        found.append(data)

    assert CliRunner().invoke(command, given, catch_exceptions=False).exit_code == 0
    assert found == [expected]


def test_completion_by_shells_loads_nothing() -> None:
    words = {"_DACERGNN_COMPLETE": "bash_complete", "COMP_WORDS": "dacergnn explain --mod", "COMP_CWORD": "2"}
    result = CliRunner().invoke(main, [], prog_name="dacergnn", env=words)
    assert result.stdout == "plain,--model\n"
    assert result.stderr == ""


def test_missing_readers_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_rdflib(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'rdflib'", name="rdflib")

    class Library:
        Entities = MUTAGDataset = staticmethod(without_rdflib)

    monkeypatch.setattr(loaders.importlib, "import_module", lambda _: Library)
    with pytest.raises(DatasetError, match=r"No module named 'rdflib'; pip install 'dacergnn\[data\]'"):
        datasets.load("mutag")
