"""Compares compiled layers on a CUDA device with PyG and careful plain PyTorch, on synthetic graphs of full size.

    python -m benchmarks devices --json results.jsonl --markdown results.md

First the device is measured: bandwidth of copies, rates of matrix products. Then every graph has its own process, and
every case (a model on a graph, in inference or training) writes a line of JSON when it is done. A run that is ended
early keeps these lines, and a crash costs one case. A later call with the same file measures the cases that have no
complete line in it. The exit status is 75 if time was too short for some cases. With ``--build`` nothing is measured:
the kernels of all cases are built, several at a time. This needs no device if ``--arch`` names a compute capability.
With ``--build-ahead`` kernels of later graphs are built while earlier ones are measured.
"""

from __future__ import annotations

import fcntl
import math
import os
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.devices.ahead import Background
from benchmarks.devices.case import DeviceCase, own_candidate
from benchmarks.devices.settings import DeviceSettings
from benchmarks.devices.tables import markdown
from benchmarks.relational import peers
from benchmarks.relational.bound import bound
from benchmarks.relational.candidate import make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, load_problem
from benchmarks.relational.record import Line, append_line, case_line, is_complete, key_of, label_of, read_lines
from benchmarks.relational.settings import MODELS
from dacergnn.bench.environment import about, load
from dacergnn.bench.measure import MODES
from dacergnn.bench.rates import PRECISIONS, gemm_rate, measure_rates, precision
from dacergnn.cli.options import available, rates_option
from dacergnn.errors import ArrayError
from dacergnn.json_lines import Row
from dacergnn.native.cache import cache_folder
from dacergnn.native.cache_files import make_folder

DATA = ("mag", "am", "wikikg2", "bgs", "biokg", "fb15k", "aifb", "mutag")
"""Large graphs come first: they are what a device is for."""
Case = tuple[str, str]
"""A model, and a mode."""
CASES_LEFT = 75
"""Exit status where time was too short for all cases."""
START_S = 15.0
"""No process is started when less time is left; one that is still busy this long after its time is ended."""


def names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


@click.command()
@click.option("--data", default=",".join(DATA), callback=names, show_default=True, help="Synthetic graphs.")
@click.option("--scale", default=1.0, show_default=True, help="Of the numbers of nodes and edges.")
@click.option("--models", default=",".join(MODELS), callback=names, show_default=True)
@click.option("--mode", default=",".join(MODES), callback=names, show_default=True)
@click.option("--dtype", default="float32", type=click.Choice(list(PRECISIONS)), show_default=True)
@click.option("--level", default="O2,hector", callback=names, show_default=True, help="Levels of ours.")
@click.option("--against", default=",".join(DeviceSettings.against), callback=names, show_default=True,
              help="Of pyg, dgl, torch, grouped (torch's products of groups), compiled (PyG's).")  # fmt: skip
@click.option("--hidden", default=64, show_default=True, type=click.IntRange(1), help="Features in and out.")
@click.option("--repeat", default=20, show_default=True, type=click.IntRange(1), help="Most rounds of a case.")
@click.option("--budget", default=2.0, show_default=True, help="Seconds for the rounds of one case.")
@click.option("--time-limit", default=math.inf, help="Seconds for everything; what is not begun by then is left out.")
@click.option("--case-limit", default=math.inf, help="Seconds for a process; the case that it is at then fails.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--arch", type=int, help="Compute capability to build for, such as 90; that of the device by default.")
@rates_option
@click.option("--build-ahead", is_flag=True, help="Build kernels in the background, while earlier graphs are measured.")
@click.option("--build", is_flag=True, help="Build the kernels of all cases and measure nothing.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), default="gpu.jsonl", show_default=True)
@click.option("--markdown", "table", type=click.Path(dir_okay=False, path_type=Path), help="Write tables here.")
@click.option("--inline", is_flag=True, hidden=True, help="Measure in this process.")
@click.option("--cases", default="", callback=names, hidden=True, help="As model:mode, in place of models and modes.")
def main(data: tuple[str, ...], scale: float, models: tuple[str, ...], mode: tuple[str, ...], **options: Any) -> None:
    """Measure RGCN, RGAT and HGT, one layer with one head, on a CUDA device."""
    cases = [(model, how) for model in models for how in mode]
    if options["cases"]:
        cases = [(model, how) for model, _, how in (case.partition(":") for case in options["cases"])]
    arch: int | None = options["arch"] or _architecture(options["device"])
    settings = DeviceSettings(
        options["level"], options["against"], options["dtype"], options["device"], None if arch is None else (arch,),
        options["rates"], options["repeat"], options["budget"],
    )  # fmt: skip
    deadline = time.monotonic() + options["time_limit"]
    if options["build"] and options["inline"]:
        build(full_name(data[0], scale), cases, settings, options["hidden"])
    elif options["build"]:
        with Background(build_commands(dict.fromkeys(data, cases))) as builds:
            failed = [name for name in data if not builds.wait(name)]  # all have their turn
            sys.exit(bool(failed))
    elif options["inline"]:
        measure(full_name(data[0], scale), cases, settings, options["hidden"], options["path"], deadline)
    else:
        device = torch.device(available(None, None, options["device"]))
        settings, absent = with_present(settings, device)
        for line in absent:
            click.echo(line)
        append_line(options["path"], machine(device) | {"absent": absent})
        hidden: int = options["hidden"]
        todo = incomplete(data, scale, hidden, cases, settings, options["path"])
        with Background(build_commands(todo) if options["build_ahead"] else {}) as builds:
            left = run_all(todo, scale, hidden, settings, options["path"], deadline, options["case_limit"], builds)
        text = markdown(read_lines(options["path"]))
        click.echo(text)
        if options["table"] is not None:
            options["table"].write_text(text)
        if left:
            click.echo(f"{left} cases are left; call again with the same --json.")
            sys.exit(CASES_LEFT)


def with_present(settings: DeviceSettings, device: torch.device) -> tuple[DeviceSettings, list[str]]:
    """Returns the settings without peers that cannot run here, and a line for each of these that says why."""
    reasons = {name: peers.absence(name, device) for name in settings.against}
    usable = tuple(name for name, reason in reasons.items() if not reason)
    return replace(settings, against=usable), [f"{name} is left out: {why}" for name, why in reasons.items() if why]


def incomplete(data: tuple[str, ...], scale: float, hidden: int, cases: list[Case], settings: DeviceSettings,
               path: Path) -> dict[str, list[Case]]:  # fmt: skip
    """Returns the cases of each graph that have no complete line in a file."""
    known = [line for line in read_lines(path) if is_complete(line, settings.levels, settings.against)]
    keys = {key_of(line) for line in known}

    def left(name: str) -> list[Case]:
        case = {"data": full_name(name, scale), "precision": settings.precision, "hidden": hidden}
        return [(m, how) for m, how in cases if key_of(case | {"model": m, "mode": how}) not in keys]

    return {name: left(name) for name in data}


def build_commands(todo: dict[str, list[Case]]) -> dict[str, list[list[str]]]:
    """Returns the commands that build the kernels of each graph, one for each case."""
    options = [*command(), "--build", "--inline", "--data"]
    return {name: [[*options, name, "--cases", ":".join(case)] for case in cases] for name, cases in todo.items()}


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


def run_all(cases: dict[str, list[Case]], scale: float, hidden: int, settings: DeviceSettings, path: Path,
            deadline: float, case_limit: float, builds: Background) -> int:  # fmt: skip
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
            chosen = ",".join(":".join(case) for case in todo)
            arguments = ["--inline", "--data", name, "--cases", chosen, "--time-limit", str(left)]
            arguments += ["--against", ",".join(settings.against)]
            failure = run([*command(), *arguments], min(left + START_S, case_limit))
            done = {(line["model"], line["mode"]) for line in read_lines(path)[begun:]}
            todo = [case for case in todo if case not in done]
            if failure is None and not done:
                break
            if failure is not None and todo:
                model, mode = todo.pop(0)
                line = failed_line(model, full_name(name, scale), mode, settings.precision, failure)
                append_line(path, line | {"hidden": hidden})
        late += len(todo)
    return late


def failed_line(model: str, data: str, mode: str, dtype: str, reason: str) -> Line:
    """Returns the line of a case whose process failed."""
    facts = {"model": model, "data": data, "mode": mode, "precision": dtype, "edges": 0}
    return facts | {"bound_ms": None, "status": "failed", "note": reason, "candidates": []}


def command() -> list[str]:
    """Returns this call; options that are appended override its own."""
    return [sys.executable, "-m", "benchmarks", *sys.argv[1:]]


def run(arguments: list[str], limit: float) -> str | None:
    """Runs a process, and returns the reason why it failed, or None."""
    try:
        code = subprocess.run(arguments, check=False, timeout=None if math.isinf(limit) else limit).returncode
    except subprocess.TimeoutExpired:
        return f"not done after {limit:.0f} s"
    return f"the process ended with code {code}" if code else None


def full_name(name: str, scale: float) -> str:
    """Returns the name of a synthetic graph for `dacergnn.datasets.resolve`."""
    return f"{name}~{scale:g}" if scale != 1 else f"{name}~"


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


def build(data: str, cases: list[Case], settings: DeviceSettings, hidden: int) -> None:
    """Compiles our layers for a graph that stays on the processor, where their kernels refuse to run."""
    problem = kept_problem(data, hidden, settings.seed)
    problem = problem.to("cpu", settings.dtype)
    with precision(settings.precision):
        for model, mode in cases:
            shared = make_parameters(model, problem, settings.seed)
            for level in settings.levels:
                built = own_candidate(model, level, settings).build(problem, shared, unwrapped)
                started = time.monotonic()
                with suppress(ArrayError):
                    make_step(built, problem, mode == "train")()
                click.echo(f"{data} {model} {mode} {level}: built in {time.monotonic() - started:.0f} s")


def measure(data: str, cases: list[Case], settings: DeviceSettings, hidden: int, path: Path,
            deadline: float) -> None:  # fmt: skip
    """Measures cases on one graph, and writes a line for each."""
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
                    return
                rows = case.measure(mode)
                limit = bound(model, mode, sizes, hidden, rates, settings.dtype.itemsize)
                line = case_line(
                    model, data, mode, rows, limit, precision=settings.precision, hidden=hidden,
                    against=settings.against, edges=problem.num_edges, sizes=sizes, rates=asdict(rates),
                    resident_bytes=resident, load_before=before, load_after=load(),
                )  # fmt: skip
                append_line(path, line)
                click.echo(f"{model} {data} {mode}: {', '.join(f'{label_of(row)} {_state(row)}' for row in rows)}")
                if case.lost:
                    return  # another process measures the remaining cases


def _state(row: Row) -> str:
    return f"{row['status']} {row['note']}" if row["ms"] is None else f"{row['ms']:.3g} ms"


def _architecture(device: str) -> int | None:
    """Returns the compute capability without the dot, or None without such a device."""
    if device != "cuda" or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor
