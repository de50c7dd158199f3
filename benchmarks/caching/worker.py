"""Runs as the process that measures a task: times of all its candidates in turns, or the peak memory of one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.caching import candidates, facts
from benchmarks.caching.task import CachingCandidate, Limits, Request
from benchmarks.caching.workload import Workload, load_workload
from benchmarks.relational.candidate import Built, step_of
from dacergnn.bench import memory
from dacergnn.bench.calls import deviation
from dacergnn.bench.measure import clock_of, interleave
from dacergnn.bench.process import reason, serve
from dacergnn.runtime.pool import POOL

TOLERANCE = 1e-3
"""Our result is wrong if its error against PyG's in float64 is larger, unless PyG's in float32 is about as far off.
A ReLU whose input is close to zero may be on in one result and off in the other."""
ROWS_PER_EDGE = 12
"""Feature rows per edge that the reference has in memory at once."""

Step = Callable[[], Any]


def measure_request(values: dict[str, Any]) -> dict[str, Any]:
    """Returns {"results": one dictionary for each candidate}, or {"peak_mb": ...}."""
    request = Request.of_json(values)
    torch.set_num_threads(request.limits.threads)
    workload = load_workload(request.task, request.limits.seed).on(request.limits.device)
    if request.what == "memory":
        memory.return_freed()
        return weigh(request.candidates[0], workload, request.limits)
    return {"results": time_all(request.candidates, workload, request.limits)}


def weigh(candidate: CachingCandidate, workload: Workload, limits: Limits) -> dict[str, Any]:
    """Measures the peak of two training steps, with encodings of edges, above the memory that is in use before.

    An earlier step on a copy of the edges, which is dropped, has loaded and compiled all code, and has drawn the
    gradient of the result.
    """
    backward = _backward(workload)
    like = replace(workload, edge_index=workload.edge_index.clone())
    step_of(candidates.make(candidate, like, limits.rates), backward, "train")()
    step = step_of(candidates.make(candidate, workload, limits.rates), backward, "train")
    gc.collect()
    POOL.clear()

    def twice() -> None:
        step()
        step()

    grown, method = memory.peak_growth(twice, workload.x.device)
    return {"peak_mb": grown / 1e6, "method": method}


def time_all(wanted: tuple[CachingCandidate, ...], workload: Workload, limits: Limits) -> list[dict[str, Any]]:
    """Validates every candidate, then times the correct ones, mode by mode.

    If our candidate has the same programs as an earlier one, it gets that one's times, and its position as "same_as".
    """
    expected = _expected(workload, limits)
    results: list[dict[str, Any]] = []
    steps: dict[str, dict[str, Step]] = {mode: {} for mode in limits.modes}
    first: dict[str, int] = {}
    for position, candidate in enumerate(wanted):
        try:
            built = candidates.make(candidate, workload, limits.rates)
            row = _validated(candidate, built, workload, expected, limits)
            own = {mode: step_of(built, _backward(workload), mode) for mode in limits.modes}
            for step in own.values() if row["status"] == "ok" else ():
                step()
            row["program"] = facts.program_of(built)
        except Exception as error:  # a candidate's failure is a result
            why = reason(error)
            results.append({"status": "out of memory" if why == "out of memory" else "failed", "note": why})
            continue
        results.append(row)
        if row["status"] == "ok":
            same = first.setdefault(row["program"], position) if row["program"] else position
            if same != position:
                row["same_as"] = same
                continue
            for mode, step in own.items():
                steps[mode][str(position)] = step
    clock = clock_of(workload.x.device)
    for mode, calls in steps.items():
        budget = limits.budget_s * len(calls) / len(steps)
        timings = interleave(calls, limits.repeat, budget, clock=clock) if calls else {}
        for position, timing in timings.items():
            results[int(position)] |= timing.as_json(f"{mode}_")
    return [{**results[row["same_as"]], **row} if "same_as" in row else row for row in results]


def _backward(workload: Workload) -> Callable[[Tensor], None]:
    """Returns a function that runs the backward from the task's gradient of the result, drawn at its first call."""
    gradient: list[Tensor] = []

    def run(out: Tensor) -> None:
        if not gradient:
            gradient.append(workload.cotangent(out))
        out.backward(gradient[0])

    return run


def _gradients(built: Built) -> dict[str, Tensor]:
    """Returns the gradients by the names of parameters; zero where there is no gradient."""
    named = [*built.layer.named_parameters(), *(("input", x) for x in built.inputs)]
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named}


def _expected(workload: Workload, limits: Limits) -> dict[str, Tensor] | None:
    """Returns result and gradients of PyG's network in float64; None where they take too much memory."""
    task = workload.task
    width = max(task.hidden * task.heads * (3 if task.model == "monet" else 1), workload.x.shape[1])
    if 8 * ROWS_PER_EDGE * width * workload.edge_index.shape[1] > limits.limit_bytes:
        return None
    built = candidates.reference(workload)
    out = step_of(built, _backward(workload), "train")()
    return {"": out.detach()} | _gradients(built)


def _error(candidate: CachingCandidate, built: Built, out: Tensor, expected: dict[str, Tensor]) -> float:
    """Returns the largest deviation of a result and its gradients, without DGL's parameters, which have other names."""
    computed = {"": out.detach()} | _gradients(built)
    names = ("", "input") if candidate.library == "dgl" else expected
    return max(deviation(computed[n], expected[n]) for n in names if n in expected)


def _validated(
    candidate: CachingCandidate,
    built: Built,
    workload: Workload,
    expected: dict[str, Tensor] | None,
    limits: Limits,
) -> dict[str, Any]:
    """Runs a training step, compares all its results, and returns the first fields of a row."""
    out = step_of(built, _backward(workload), "train")()
    row: dict[str, Any] = {"status": "ok", "note": "" if expected else "not compared: the reference is too large"}
    if expected is not None:
        error = row["max_error"] = _error(candidate, built, out, expected)
        if candidate.library == "ours" and not error <= TOLERANCE:
            theirs = CachingCandidate("pyg", "COO")
            other = candidates.make(theirs, workload)
            usual = _error(theirs, other, step_of(other, _backward(workload), "train")(), expected)
            row["note"] = f"differs from PyG in float64 by {error:.1e}, PyG in float32 by {usual:.1e}"
            row["status"] = "ok" if error <= 2 * usual else "wrong"
    del out
    if not candidate.compiled:
        row["saved_bytes"] = facts.saved_bytes(built)
    if candidate.scheme is not None:
        row |= facts.predicted(built, replace(candidate.scheme.config, rates=limits.rates).on(limits.device))
    return row


if __name__ == "__main__":
    serve(measure_request)
