"""Measures training steps of a layer whose graph, features, results and encodings lie in files.

python -m benchmarks steps_in_files make mag~4 FOLDER
python -m benchmarks steps_in_files encode FOLDER --memory 1GB
python -m benchmarks steps_in_files run rgat FOLDER --memory 6GB

The last two commands may run where the system limits its memory, with the pages of files that it has mapped:
``systemd-run --scope -p MemoryMax=6.5G``.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import click
import numpy as np
import torch

from dacergnn import datasets
from dacergnn.bench.memory import sampled_peak
from dacergnn.cli.named_layers import native_layer
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.ways.memory_limit import largest_division

FEATURES = 64
CHUNK = 1 << 18


@click.group(invoke_without_command=True)
@click.option("--quick", is_flag=True, help="Run all commands on a small graph.")
@click.pass_context
def main(context: click.Context, quick: bool) -> None:
    """Measure steps in files."""
    if quick:
        with TemporaryDirectory() as folder:
            for arguments in (["make", "am~0.005", folder], ["encode", folder], ["run", "rgcn", folder]):
                main(arguments, standalone_mode=False)
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command()
@click.argument("data")
@click.argument("folder", type=click.Path(path_type=Path))
def make(data: str, folder: Path) -> None:
    """Write edges in any order, node types, and random features."""
    graph, generator = datasets.resolve(data).graph, torch.Generator().manual_seed(0)
    nodes, edges = graph.size("NS"), graph.size("E")
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "ntype.npy", graph.index("NS", "ntype").long().numpy())
    order = torch.randperm(edges, generator=generator)
    for name, path in (("src", "src"), ("dst", "dst"), ("etype", "etype")):
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.int64, (edges,))
        for start in range(0, edges, CHUNK):
            array[start : start + CHUNK] = graph.index("E", path)[order[start : start + CHUNK]].numpy()
        array.flush()
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (nodes, FEATURES))
    for start in range(0, nodes, CHUNK):
        stop = min(start + CHUNK, nodes)
        x[start:stop] = torch.randn(stop - start, FEATURES, generator=generator).numpy()
    x.flush()


@main.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--memory", default="1GB", show_default=True)
def encode(folder: Path, memory: str) -> None:
    """Sort and count the edges in files."""
    src, dst, etype = (torch.from_numpy(np.load(folder / f"{n}.npy", mmap_mode="r+")) for n in ("src", "dst", "etype"))
    kinds = torch.from_numpy(np.load(folder / "ntype.npy"))
    made: list[HeteroGraph] = []

    def call() -> None:
        made.append(
            HeteroGraph.encode(
                folder / "graph", (src, dst), etype, num_nodes=len(kinds), node_type=kinds, memory=memory
            )
        )

    before, first, start = moved(), private(), perf_counter()
    most = sampled_peak(call, private)
    read, written = ((after - then) / 1e9 for after, then in zip(moved(), before, strict=True))
    click.echo(f"{perf_counter() - start:.1f} s, {read:.1f} GB read, {written:.1f} GB written")
    click.echo(f"{made[0]}: {(most - first) / 1e9:.2f} GB more private memory")


@main.command()
@click.argument("model", type=click.Choice(["rgcn", "rgat", "hgt"]))
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--memory", default="6GB", show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--steps", default=2, show_default=True)
def run(model: str, folder: Path, memory: str, threads: int, steps: int) -> None:
    """Make training steps, the first of which builds the kernels and the encodings."""
    torch.set_num_threads(threads)
    graph = HeteroGraph.load(folder / "graph", check=False)
    x = torch.from_numpy(np.load(folder / "x.npy", mmap_mode="r+")).requires_grad_()
    layer = native_layer(model, graph, FEATURES, 1, Config(memory=memory, scratch=str(folder)))
    for step in range(steps):
        before, start = moved(), perf_counter()
        torch.autograd.grad(layer(x, graph).sum(), [x, *layer.parameters()])
        seconds = perf_counter() - start
        read, written = ((after - then) / 1e9 for after, then in zip(moved(), before, strict=True))
        click.echo(
            f"step {step}: {seconds:.1f} s, {read:.1f} GB read, {written:.1f} GB written, "
            f"{private() / 1e9:.2f} GB private"
        )
    call = compiled_parts(layer)[0].part.last_call
    division = None if call is None else largest_division(*call)
    if division is not None:
        ranges = 1 if division.ranges is None else len(division.ranges)
        click.echo(f"{ranges} ranges, {division.need / 1e9:.2f} GB estimated beside files")


def moved() -> tuple[int, int]:
    """Returns the bytes that this process has read from the disk and written to it."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"]), int(lines["write_bytes"])


def private() -> int:
    """Returns the bytes of this process that are no pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
