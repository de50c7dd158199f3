"""Run the tests of one file with compiled layers in place of a library's, in this process, for scripts/peer_suite.py.

    python scripts/peer_tests.py CHECKOUT FILE_OF_TESTS without|constructors|calls FILE_TO_WRITE

Every line that is written is a JSON list: a test, "passed", "skipped" or what was wrong in a line, the calls of
compiled layers so far, and those that ran the original by layer and reason.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

ENDED = "the process ended here"
"""What is written when a test begins."""


@dataclass
class Counts:
    """How often compiled layers returned a result, and how often the original made it, by layer and reason."""

    calls: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter[str])


class Recorder:
    """Plugin of pytest that writes a line for every test when it begins and when it ends, so that a crash tells where.

    Args:
        lines: The file to write to.
        counts: What has been counted so far.
    """

    def __init__(self, lines: Path, counts: Counts) -> None:
        self.lines, self.counts = lines.open("w"), counts

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._write("(collection)", _first_line(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins: what stays if the process ends in it."""
        self._write(nodeid, ENDED)

    def pytest_runtest_setup(self) -> None:
        """The same random numbers in each way to run a test."""
        import torch

        torch.manual_seed(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test ends; the first part that fails or skips it counts."""
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, _first_line(report) if report.failed else report.outcome)

    def _write(self, name: str, what: str) -> None:
        row = [name.rpartition("/")[2], what, self.counts.calls, dict(self.counts.fallbacks)]
        print(json.dumps(row), file=self.lines, flush=True)


def _first_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr)).strip().partition("\n")[0] or "failed"


def _compiled(layer: Any) -> Any:
    """Returns the compiled layer for one of a library's, or the layer itself where there is none."""
    from dacergnn import Config
    from dacergnn.frontends import find_frontend, is_message_passing, takes_graphs
    from dacergnn.modules.graphs import GraphCache
    from dacergnn.modules.layer import CompiledLayer, compile_layer
    from dacergnn.modules.layer_core import LayerCore

    taken = find_frontend(layer) is not None or is_message_passing(layer) or takes_graphs(layer)
    if isinstance(layer, CompiledLayer) or not taken:
        return layer
    return compile_layer(LayerCore(layer, Config(), GraphCache(), "ignore"))


def compile_constructed() -> None:
    """Let a library's classes of layers, and those derived from them, construct compiled layers."""
    import dgl.nn.pytorch
    from torch import nn
    from torch_geometric.nn import HeteroConv, MessagePassing

    from dacergnn.modules.layer import CompiledLayer

    def construct(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        layer: Any = object.__new__(cls)
        if issubclass(cls, CompiledLayer):
            return layer
        cls.__init__(layer, *args, **kwargs)
        layer = _compiled(layer)
        if not isinstance(layer, CompiledLayer):
            return layer
        type(layer).__init__ = lambda *args, **kwargs: None  # which Python calls next
        type(layer).__repr__ = cls.__repr__  # without the word "compiled", since tests compare texts
        return layer

    def reduce(layer: Any, protocol: Any) -> Any:  # copies and pickles construct nothing
        compiled = isinstance(layer, CompiledLayer)
        return layer.__reduce__() if compiled else (object.__new__, (type(layer),), layer.__getstate__())

    classes = [c for c in vars(dgl.nn.pytorch).values() if isinstance(c, type) and issubclass(c, nn.Module)]
    for cls in (HeteroConv, MessagePassing, *classes):
        cls.__new__, cls.__reduce_ex__ = construct, reduce


def compile_called() -> None:
    """Let calls of a library's layers be made by compiled layers that are kept for them."""
    from torch import nn

    from dacergnn.modules.layer import core_of

    call: Any = nn.Module.__call__
    kept: dict[int, Any] = {}  # a compiled layer holds its original, so that the number stays its own
    within: list[Any] = []  # layers whose parts are their own matter

    @wraps(call)
    def compiled_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if within or (layer := kept.get(id(module)) or _compiled(module)) is module:
            return call(module, *args, **kwargs)
        kept[id(module)] = layer
        core_of(layer).find_self = lambda: module  # for hooks
        within.append(layer)
        try:
            return call(layer, *args, **kwargs)
        finally:
            within.pop()

    nn.Module.__call__ = compiled_call


def count_calls(counts: Counts) -> None:
    """Let calls of compiled layers, and those that run the original, be counted when they return."""
    from dacergnn.modules.layer_core import LayerCore
    from dacergnn.modules.runner import Runner

    cores: Any = LayerCore
    runners: Any = Runner
    call, fall_back, uncompiled = cores.call, runners.fall_back, runners.uncompiled
    reasons: list[str] = []

    def counted_call(core: Any, args: Any, kwargs: Any) -> Any:
        result = call(core, args, kwargs)
        counts.calls += 1
        return result

    def noted_fall_back(runner: Any, reason: str, *args: Any, **kwargs: Any) -> Any:
        reasons.append(reason)
        try:
            return fall_back(runner, reason, *args, **kwargs)
        finally:
            reasons.pop()

    def counted_uncompiled(runner: Any, *args: Any, **kwargs: Any) -> Any:
        reason = reasons[-1] if reasons else getattr(runner, "reason", "torch writes its operations down")
        result = uncompiled(runner, *args, **kwargs)
        counts.fallbacks[f"{runner.core.kind}: {reason.splitlines()[0]}"] += 1
        return result

    cores.call, runners.fall_back, runners.uncompiled = counted_call, noted_fall_back, counted_uncompiled


def main() -> None:
    """Run the tests of a file in this process, and write what they give to another."""
    checkout, tests, mode, lines = sys.argv[1:]
    counts = Counts()
    if mode != "without":
        count_calls(counts)
        {"constructors": compile_constructed, "calls": compile_called}[mode]()
    os.environ.setdefault("DGLBACKEND", "pytorch")
    sys.path.insert(0, str(Path(checkout, "tests")))  # where DGL's tests keep what they share
    options = ["-q", "-o", "addopts=", "-m", "not rag and not dataset", "-p", "no:cacheprovider"]
    pytest.main([*options, f"--rootdir={checkout}", tests], plugins=[Recorder(Path(lines), counts)])


if __name__ == "__main__":
    main()
