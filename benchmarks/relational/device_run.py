"""Runs the suite on a CUDA device: `python -m benchmarks relational --device cuda`.

First the device is measured: bandwidth of copies, rates of matrix products. Then every graph has its own process, and
every case (a model on a graph, in inference or training) writes a line of JSON when it is done. A run that is ended
early keeps these lines, and a crash costs one case. A later call with the same file measures the cases that have no
complete line in it. With ``--build`` nothing is measured: the kernels of all cases are built, several at a time. This
needs no device if ``--arch`` names a compute capability. With ``--build-ahead`` kernels of later graphs are built while
earlier ones are measured.
"""

from __future__ import annotations

import fcntl
import math
import os
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import torch

from benchmarks.relational import peers
from benchmarks.relational.ahead import Background
from benchmarks.relational.bound import bound
from benchmarks.relational.candidate import make_step, unwrapped
from benchmarks.relational.device_case import DeviceCase, own_candidate
from benchmarks.relational.device_tables import markdown
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, load_problem
from benchmarks.relational.record import Line, append_line, case_line, is_complete, key_of, label_of, read_lines
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.environment import about, load
from dacergnn.bench.process import ask
from dacergnn.bench.rates import PRECISIONS, gemm_rate, measure_rates, precision
from dacergnn.errors import ArrayError
from dacergnn.json_lines import Row
from dacergnn.native.cache import cache_folder
from dacergnn.native.cache_files import make_folder

Case = tuple[str, str]
"""A model, and a mode."""
CASES_LEFT = 75
"""Exit status where time was too short for all cases."""
START_S = 15.0
"""No process is started when less time is left; one that is still busy this long after its time is ended."""


@dataclass(frozen=True)
class DeviceRun:
    """Describes what a call does.

    Args:
        path: File of lines.
        table: File of the tables in Markdown, if there is one.
        time_limit: Seconds for everything; what is not begun by then is left out.
        case_limit: Seconds for a process; the case that it is at then fails.
        build: Whether kernels are built, in this process if they are of a single case, and nothing is measured.
        build_ahead: Whether kernels of later graphs are built while earlier ones are measured.
    """

    path: Path
    table: Path | None = None
    time_limit: float = math.inf
    case_limit: float = math.inf
    build: bool = False
    build_ahead: bool = False

    def __call__(self, settings: BenchSettings) -> int:
        """Does what is described, and returns the exit status."""
        if settings.architectures is None and settings.device == "cuda":
            settings = replace(settings, architectures=_architecture())
        cases = [(model, how) for model in settings.models for how in settings.modes]
        if not self.build:
            return self._measure(settings, cases, time.monotonic() + self.time_limit)
        if len(cases) == len(settings.data) == 1:
            build(settings.data[0], *cases[0], settings)
            return 0
        with Background(build_commands(dict.fromkeys(settings.data, cases), settings.hidden)) as builds:
            return bool([name for name in settings.data if not builds.wait(name)])  # all have their turn

    def _measure(self, settings: BenchSettings, cases: list[Case], deadline: float) -> int:
        device = torch.device(settings.device)
        settings, absent = with_present(settings, device)
        for line in absent:
            click.echo(line)
        append_line(self.path, machine(device) | {"absent": absent})
        todo = incomplete(cases, settings, self.path)
        with Background(build_commands(todo, settings.hidden) if self.build_ahead else {}) as builds:
            left = run_all(todo, settings, self.path, deadline, self.case_limit, builds)
        text = markdown(read_lines(self.path))
        click.echo(text)
        if self.table is not None:
            self.table.write_text(text)
        if left:
            click.echo(f"{left} cases are left; call again with the same --json.")
        return CASES_LEFT if left else 0


def with_present(settings: BenchSettings, device: torch.device) -> tuple[BenchSettings, list[str]]:
    """Returns the settings without peers that cannot run here, and a line for each of these that says why."""
    reasons = {name: peers.absence(name, device) for name in settings.against}
    usable = tuple(name for name, reason in reasons.items() if not reason)
    return replace(settings, against=usable), [f"{name} is left out: {why}" for name, why in reasons.items() if why]


def incomplete(cases: list[Case], settings: BenchSettings, path: Path) -> dict[str, list[Case]]:
    """Returns the cases of each graph that have no complete line in a file."""
    known = [line for line in read_lines(path) if is_complete(line, settings.levels, settings.against)]
    keys = {key_of(line) for line in known}

    def left(name: str) -> list[Case]:
        case = {"data": name, "precision": settings.precision, "hidden": settings.hidden}
        return [(m, how) for m, how in cases if key_of(case | {"model": m, "mode": how}) not in keys]

    return {name: left(name) for name in settings.data}


def build_commands(todo: dict[str, list[Case]], hidden: int) -> dict[str, list[list[str]]]:
    """Returns the commands that build the kernels of each graph, one for each case: this call with other options."""
    options = [sys.executable, "-m", "benchmarks", *sys.argv[1:], "--build", "--hidden", str(hidden)]
    return {name: [[*options, "--data", name, "--models", model, "--mode", how] for model, how in cases]
            for name, cases in todo.items()}  # fmt: skip


def machine(device: torch.device) -> Line:
    """Returns this call, versions, and the device's rates: copies in GB/s, matrix products in GFLOP/s."""
    size = 8192 if device.type == "cuda" else 512
    rates: dict[str, float] = {"copy_gb_s": measure_rates(device=device).streamed / 1e9}
    for name in ("float32", "tf32", "bfloat16") if device.type == "cuda" else ("float32",):
        with precision(name):
            rates[f"{name}_gflop_s"] = gemm_rate(size, device, PRECISIONS[name]) / 1e9
    if device.type == "cuda":
        torch.cuda.empty_cache()  # leaves the memory to the processes that measure
    line = {
        **about(rates=rates),
        "memory_bytes": torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None,
    }
    click.echo(line)
    return line


def run_all(cases: dict[str, list[Case]], settings: BenchSettings, path: Path, deadline: float, case_limit: float,
            builds: Background) -> int:  # fmt: skip
    """Runs a process for the cases of each graph, and another one for those after a case at which a process failed.

    Returns how many cases time was too short for.
    """
    late = 0
    for name, wanted in cases.items():
        todo = [*wanted]
        if todo:
            builds.wait(name, max(deadline - time.monotonic() - START_S, 0))
        while todo and deadline - time.monotonic() > START_S:
            begun, left = len(read_lines(path)), deadline - time.monotonic()
            answer = ask(
                f"{__name__}.measure", name, todo, settings, path, deadline, limit_s=min(left + START_S, case_limit),
                threads=torch.get_num_threads(), limit_bytes=settings.memory_limit, device=settings.device,
            )  # fmt: skip
            lines = read_lines(path)[begun:]
            for line in lines:
                told = ", ".join(f"{label_of(row)} {_state(row)}" for row in line["candidates"])
                click.echo(f"{line['model']} {name} {line['mode']}: {told}")
            done = {(line["model"], line["mode"]) for line in lines}
            todo = [case for case in todo if case not in done]
            if "error" in answer and todo:
                model, mode = todo.pop(0)
                line = failed_line(model, name, mode, settings.precision, answer["error"])
                append_line(path, line | {"hidden": settings.hidden})
            elif not done:
                break
        late += len(todo)
    return late


def failed_line(model: str, data: str, mode: str, dtype: str, reason: str) -> Line:
    """Returns the line of a case whose process failed."""
    facts = {"model": model, "data": data, "mode": mode, "precision": dtype, "edges": 0}
    return facts | {"bound_ms": None, "status": "failed", "note": reason, "candidates": []}


def kept_problem(data: str, hidden: int, seed: int) -> Problem:
    """Returns a problem on the processor; large ones take a minute to make, so they are kept with the builds.

    One process makes it, and others wait.
    """
    path = cache_folder() / "problems" / f"{data}-{hidden}-{seed}.tensors"
    make_folder(path.parent)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            torch.save(vars(load_problem(data, hidden, seed)), part)
            part.replace(path)
    return Problem(**torch.load(path, weights_only=True))  # tensors, numbers and names: nothing in it is run


def build(data: str, model: str, mode: str, settings: BenchSettings) -> None:
    """Compiles our layers for a graph that stays on the processor, where their kernels refuse to run."""
    problem = kept_problem(data, settings.hidden, settings.seed).to("cpu", settings.dtype)
    with precision(settings.precision):
        shared = make_parameters(model, problem, settings.seed)
        for level in settings.levels:
            built = own_candidate(model, level, settings).build(problem, shared, unwrapped)
            started = time.monotonic()
            with suppress(ArrayError):
                make_step(built, problem, mode == "train")()
            click.echo(f"{data} {model} {mode} {level}: built in {time.monotonic() - started:.0f} s")


def measure(data: str, cases: list[Case], settings: BenchSettings, path: Path, deadline: float) -> Row:
    """Measures cases on one graph, and writes a line for each as soon as it is done: a crash costs one case."""
    hidden = settings.hidden
    warnings.simplefilter("ignore")  # the libraries warn about their own internals
    device = torch.device(settings.device)
    problem = kept_problem(data, hidden, settings.seed).to(device, settings.dtype)
    sizes = problem.sizes()
    resident = torch.cuda.memory_allocated(device) if device.type == "cuda" else None
    with precision(settings.precision):
        rates = measure_rates(problem.num_nodes, hidden, device, settings.dtype)
        for model in dict.fromkeys(model for model, _ in cases):
            case, before = DeviceCase(model, problem, settings, deadline), load()
            for mode in [how for name, how in cases if name == model]:
                if time.monotonic() > deadline:
                    return {}
                rows = case.measure(mode)
                limit = bound(model, mode, sizes, hidden, rates, settings.dtype.itemsize)
                line = case_line(
                    model, data, mode, rows, limit, precision=settings.precision, hidden=hidden,
                    against=settings.against, edges=problem.num_edges, sizes=sizes, rates=asdict(rates),
                    resident_bytes=resident, load_before=before, load_after=load(),
                )  # fmt: skip
                append_line(path, line)
                if case.lost:
                    return {}  # another process measures the remaining cases
    return {}


def _state(row: Row) -> str:
    return f"{row['status']} {row['note']}" if row["ms"] is None else f"{row['ms']:.3g} ms"


def _architecture() -> tuple[int, ...]:
    """Returns the compute capability of the device, without the dot."""
    major, minor = torch.cuda.get_device_capability()
    return (10 * major + minor,)
