"""The notebooks run as they are, without a warning, and draw as many pictures as those that are kept show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
# What these libraries warn of while they are imported is not ours.
STRICT = "import warnings, matplotlib.pyplot, torch_geometric.nn, dacergnn\nwarnings.simplefilter('error')"
FOUND = {
    "relational_tables": "assert runs['compiled'].accuracies[-1] > 0.8 > runs['own row only'].accuracies[-1] + 0.2",
    "caching_strategies": "assert 0 == builds['recompute_all'].saved_bytes < builds['cache_all'].saved_bytes",
}


def outputs(notebook: Any, kind: str) -> list[Any]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        output for cell in cells for output in cell.outputs if kind in (output.output_type, *output.get("data", ()))
    ]


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.mark.check
@pytest.mark.parametrize("name", FOUND)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CXXFLAGS", raising=False)  # hundreds of steps take longer than builds that run them fast
    notebook = read(name)
    kept = len(outputs(notebook, "image/png"))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    # The kernel warns of itself when it ends.
    notebook.cells.append(nbformat.v4.new_code_cell(f"{FOUND[name]}\nwarnings.resetwarnings()"))
    NotebookClient(notebook, kernel_name="python3", timeout=300).execute(cwd=str(tmp_path))
    assert not outputs(notebook, "text/html"), "DaCe shows its viewer where dacergnn is imported"
    del notebook.cells[0]
    assert kept == len(outputs(notebook, "image/png")) > 0
    assert {stream.name for stream in outputs(notebook, "stream")} <= {"stdout"}


def test_notebooks_are_kept_with_small_outputs() -> None:
    assert {file.stem for file in FOLDER.glob("*.ipynb")} == set(FOUND)
    for name in FOUND:
        assert (FOLDER / f"{name}.ipynb").stat().st_size < 200_000
        for cell in read(name).cells:
            assert cell.cell_type != "code" or cell.execution_count, f"run docs/make_notebooks.py: {cell.source}"
