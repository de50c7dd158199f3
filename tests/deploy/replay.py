"""Runs operators of exported models in a process without this package; takes a file of calls, and libraries."""

import importlib
import sys
from typing import Any

import torch
from torch._inductor import aoti_load_package


def run(calls: str, package: str, libraries: list[str]) -> None:
    """Runs calls, and then checks that a package is not imported after its operators have been loaded."""
    for library in libraries:
        torch.ops.load_library(library)
    for call in torch.load(calls):
        operator = getattr(torch.ops.dacergnn, call["name"]).default
        made: Any = None
        problem = None
        try:
            made = operator(*call["args"])
        except RuntimeError as error:
            problem = str(error)
        if call["error"] is not None:
            assert problem is not None, (call["name"], call["error"])
            assert call["error"] in problem, problem
        else:
            assert problem is None, (call["name"], problem)
            torch.testing.assert_close(made, call["result"], rtol=1e-5, atol=1e-6)
    assert not any(name.partition(".")[0] == "dacergnn" for name in sys.modules)
    sys.path.insert(0, package)
    refused = ""
    try:
        importlib.import_module("dacergnn")
    except Exception as error:
        refused = str(error)
    assert "Import dacergnn before such a library is loaded" in refused, refused


def load(package: str, calls: str, library: str) -> None:
    torch.ops.load_library(library)
    model = aoti_load_package(package)
    for args, expected in torch.load(calls):
        torch.testing.assert_close(model(*args), expected, rtol=1e-5, atol=1e-6)
    assert not any(name.partition(".")[0] == "dacergnn" for name in sys.modules)


if __name__ == "__main__":
    if sys.argv[1] == "operators":
        run(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        load(sys.argv[2], sys.argv[3], sys.argv[4])
