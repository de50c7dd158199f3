"""Counts how evenly kernels share their work among threads, and what they leave to one, for any number of threads.

The blocks of each parallel loop are cut for that many threads, run one after the other on one of them, and measured.
Every other run takes them from the last to the first, since the first one of all finds the caches empty; the least time
of a block counts. Then blocks are dealt out as threads would take them: each to the thread that is free first. So the
figures hold for threads that do not slow each other down, on machines that have as many.

Run: python -m benchmarks threads [--data bgs~,biokg~,am~] [--models rgcn,rgat,hgt] [--threads 16] [--repeat 3]
"""

from __future__ import annotations

import heapq
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch

from benchmarks.options import question
from benchmarks.relational.settings import MODELS
from benchmarks.standalone import Standalone
from dacergnn import HeteroGraph, datasets
from dacergnn.cli.named_layers import native_layer
from dacergnn.modules.graph_layer import GraphLayer
from dacergnn.modules.variant import Variant
from dacergnn.native.build import compiler_command, own_flags
from dacergnn.runtime.clocks import ProgramWithClocks
from dacergnn.sdfg_passes.compilation import ROLES
from dacergnn.tables import Table

WIDTH = 64
# Comes before the code: notes the time of every block and of every operator, and keeps all blocks on one thread.
_HEADER = """
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "include/dacergnn/clock.h"
struct Note { std::int64_t block, blocks, begin, end; };  // block -1: so many operators have ended
struct Notes : std::vector<Note> {
  ~Notes() {
    std::FILE *file = std::fopen(std::getenv("DACERGNN_NOTES"), "wb");
    std::fwrite(data(), sizeof(Note), size(), file);
    std::fclose(file);
  }
};
static Notes notes;
static std::int64_t runs = 0;
static std::int64_t clock_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
namespace dacergnn {
static void note_operator(std::int64_t k) {
  runs += k == 0;
  notes.push_back({-1, k, clock_now(), clock_now()});
}
}
#define tick note_operator
#define DACERGNN_RUN_BLOCK(block, blocks, run)           \\
  do {                                                   \\
    if (runs % 2 != 0) block = blocks - 1 - block;       \\
    const std::int64_t begin = clock_now();              \\
    run;                                                 \\
    notes.push_back({block, blocks, begin, clock_now()}); \\
  } while (false)
extern "C" void GOMP_parallel(void (*body)(void *), void *data, unsigned, unsigned) { body(data); }
"""
_NOTE = np.dtype([("block", "i8"), ("blocks", "i8"), ("begin", "i8"), ("end", "i8")])
Notes = npt.NDArray[Any]


class OneThread(Standalone):
    """Runs programs that are cut for many threads on one."""

    launcher = ()
    threads: int
    repeat: int
    notes: list[Notes]

    def launch(self, command: list[str]) -> None:
        """Runs the call several times, and keeps what it notes, but for the first time, when memory is new."""
        with tempfile.NamedTemporaryFile() as file:
            environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "DACERGNN_NOTES": file.name}
            subprocess.run([*command, str(self.repeat + 1)], check=True, env=environment)
            notes = np.fromfile(file.name, dtype=_NOTE)
        starts = np.flatnonzero((notes["block"] < 0) & (notes["blocks"] == 0))
        self.notes = np.split(notes, starts[1:])[1:]


@dataclass
class Shares:
    """Holds nanoseconds: of one thread in all, of the busiest of many threads in parallel loops, outside of these."""

    work: float = 0
    busiest: float = 0
    serial: float = 0
    threads: int = 1

    @property
    def imbalance(self) -> float:
        """Returns what the busiest thread does in parallel loops over what threads do in the mean."""
        shared = self.work - self.serial
        return self.busiest / (shared / self.threads) if shared else 1.0


def busiest(blocks: npt.NDArray[np.float64], threads: int) -> float:
    """Returns when the last thread ends, if each block in turn goes to the thread that is free first."""
    free = [0.0] * min(threads, len(blocks))
    for block in blocks:
        heapq.heapreplace(free, free[0] + float(block))
    return max(free)


def operators(notes: list[Notes], threads: int) -> Iterator[Shares]:
    """Puts the notes of several runs together; every time is the least of all runs."""
    first = notes[0]
    marks = np.flatnonzero(first["block"] < 0)
    for start, stop in pairwise(marks):
        shares = Shares(threads=threads)
        loops: list[slice] = []
        at = start + 1
        while at < stop:
            count = int(first["blocks"][at])
            loops += [slice(at, at + count)] if count > 1 else []
            at += count
        for loop in loops:
            ordered = [n[loop][np.argsort(n[loop]["block"])] for n in notes]
            times = np.min([n["end"] - n["begin"] for n in ordered], axis=0).astype(np.float64)
            shares.busiest += busiest(times, threads)
            shares.work += float(times.sum())
        # The time between blocks of one loop is the benchmark's own.
        serial = [
            n["begin"][stop] - n["end"][start] - sum(n["end"][loop][-1] - n["begin"][loop][0] for loop in loops)
            for n in notes
        ]
        shares.serial = float(min(serial))
        shares.work += shares.serial
        yield shares


def measured(variant: Variant, graph: HeteroGraph, threads: int, repeat: int) -> Iterator[tuple[str, Shares]]:
    """Measures the operators of forward and backward on random inputs."""
    compilation = variant.compilation
    for role, executable in zip(ROLES, (variant.forward, variant.backward), strict=True):
        if executable is None:
            continue
        program = ProgramWithClocks.of(compilation.by_role[role], compilation.saved)
        run = OneThread(program.lowered, executable.results)
        run.threads, run.repeat = threads, repeat
        prepared = run.prepare(graph)
        inputs = [0.1 * torch.randn(prepared.inputs.shape(name)) for name in prepared.inputs.names]
        run(prepared, inputs)
        names = ("+".join(name for o in group for name in o.written_arrays) for group in program.groups)
        yield from zip((f"{role} {name}" for name in names), operators(run.notes, threads), strict=True)


@question(data=(), models=(), threads=(), repeat=1)
def main(
    data: tuple[str, ...] = ("fb15k237", "bgs~", "biokg~", "am~"), models: tuple[str, ...] = MODELS,
    threads: tuple[int, ...] = (16,), repeat: int = 3,
) -> None:  # fmt: skip
    """Measures a training step of every layer on every graph."""
    headings = ("graph", "layer", "threads", "busiest / mean", "of the worst operator", "outside of loops")
    table = Table("Shares of threads", headings, keys=3)
    with tempfile.TemporaryDirectory() as folder:
        header = Path(folder) / "notes.h"
        header.write_text(_HEADER)
        flags = [flag for flag in own_flags() if flag != "-shared"]
        OneThread.compiler = (*compiler_command(), *flags, "-include", str(header))
        for name in data:
            graph = datasets.load(name).graph
            for model in models:
                layer = native_layer(model, graph, WIDTH, 1)
                assert isinstance(layer, GraphLayer)
                layer(torch.randn(graph.size("NS"), WIDTH, requires_grad=True), graph).sum().backward()
                (program,) = layer.compiled_programs.values()
                (variant,) = program.variants
                for count in threads:
                    table.add_row(name, model, str(count), *_summary(list(measured(variant, graph, count, repeat))))
    click.echo(table)


def _summary(operators: list[tuple[str, Shares]]) -> tuple[str, str, str]:
    """Returns the shares of all operators, of the worst one that takes more than a hundredth, and of serial work."""
    work, longest, serial = (sum(getattr(s, f) for _, s in operators) for f in ("work", "busiest", "serial"))
    total = Shares(work, longest, serial, operators[0][1].threads)
    worst, name = max((s.imbalance, name) for name, s in operators if s.work > 0.01 * work)
    return f"{total.imbalance:.2f}", f"{worst:.2f} ({name})", f"{100 * serial / work:.2f} %"
