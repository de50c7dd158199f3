"""Runs the notebooks and keeps their outputs in them, so that a repository's browser shows text and pictures.

    python docs/make_notebooks.py                      # all of docs/notebooks
    python docs/make_notebooks.py docs/notebooks/relational_tables.ipynb

Needs nbclient and ipykernel (`pip install -e '.[pyg,plot,test]'`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent / "notebooks"


def main(*names: str) -> None:
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, where ipywidgets is not installed
    for file in map(Path, names or sorted(FOLDER.glob("*.ipynb"))):
        notebook = nbformat.read(file, as_version=4)
        # Without times of cells, which would make every run another file.
        NotebookClient(notebook, kernel_name="python3", record_timing=False).execute(cwd=str(file.parent))
        notebook.metadata["language_info"] = {"name": "python"}  # the kernel adds its version
        nbformat.write(notebook, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
