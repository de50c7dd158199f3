"""`dacergnn export` makes the library of an exported program, and of a model that a function returns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from dacergnn.cli import main
from dacergnn.deploy.capture import dynamic_shapes
from dacergnn.deploy.library import ExportedLibrary
from tests.support.library import Library

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
_LINEAR = nn.Linear(4, 3).eval()


def made() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return _LINEAR, (torch.ones(5, 4),)


def unfit() -> nn.Module:
    return _LINEAR


def _checked(folder: Path, name: str) -> None:
    library = Library(ExportedLibrary(folder / f"lib{name}.so", folder / f"{name}.h", folder / f"{name}.json", None))
    x = torch.randn(7, 4)
    with torch.no_grad():
        torch.testing.assert_close(library(x)[0], _LINEAR(x))


def test_a_program_of_a_file(tmp_path: Path) -> None:
    _, example = made()
    program = torch.export.export(_LINEAR, example, dynamic_shapes=tuple(map(dynamic_shapes, example)))
    torch.export.save(program, tmp_path / "program.pt2")
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["export", str(tmp_path / "program.pt2"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == [
        str(out / file) for file in ("libmodel.so", "model.h", "model.json")
    ]
    assert "MODEL_INPUT = 0, /* input: float [input, 4] */" in (out / "model.h").read_text()
    _checked(out, "model")


def test_a_model_of_a_function(tmp_path: Path) -> None:
    arguments = ["export", f"{__name__}:made", "--out", str(tmp_path), "--name", "linear"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    _checked(tmp_path, "linear")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("none.pt2", "none.pt2 is no file; name one that torch.export.save wrote, or MODULE:FUNCTION."),
        ("no_such_module:made", "No module named 'no_such_module'; name a function of a module"),
        (f"{__name__}:_LINEAR2", "has no attribute '_LINEAR2'"),
        (f"{__name__}:__name__", "is no function; name one that returns a model and a tuple"),
        (f"{__name__}:unfit", "returned Linear; return a model and a tuple of arguments"),
    ],
)
def test_sources_that_are_none(source: str, text: str) -> None:
    result = CliRunner().invoke(main, ["export", source])
    assert result.exit_code == 1
    assert text in " ".join(result.output.split())
