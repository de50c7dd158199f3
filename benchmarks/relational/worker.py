"""Runs as the process behind trial.py: builds one candidate, runs it, writes one line of JSON to standard output.

It reads a Request (as JSON) from standard input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.relational import candidate, ours, peers
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, load_problem, make_problem
from benchmarks.relational.trial import Request
from dacergnn.bench import measure, memory
from dacergnn.bench.process import serve


def find(request: Request) -> candidate.Candidate:
    """Returns the candidate that a request names."""
    if request.library == "ours":
        return ours.candidate(request.model, request.level, request.plan)
    candidates = peers.candidates(request.model, (request.library,))
    return next(c for c in candidates if c.name == request.candidate)


def tiny_problem(hidden: int) -> Problem:
    """Returns a problem of two node types, three relations and ten edges; it loads all code without the real graph."""
    src = torch.tensor([0, 1, 2, 3, 0, 4, 5, 4, 5, 5])
    dst = torch.tensor([4, 5, 4, 5, 5, 0, 1, 2, 3, 3])
    etype = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    return make_problem("tiny", src, dst, etype, [4, 2], 3, hidden)


def step_of(request: Request, problem: Problem) -> Any:
    """Returns the callable that is measured."""
    shared = make_parameters(request.model, problem, request.seed)
    built = find(request).build(problem, shared, candidate.unwrapped)
    return candidate.make_step(built, problem, request.mode == "train")


def measure_request(request: Request) -> dict[str, Any]:
    """Returns the peak memory of two steps, or the times of a layer and of the same layer not compiled."""
    torch.set_num_threads(request.threads)
    if request.what == "memory":
        memory.return_freed()
    device = torch.device(request.device)
    problem = load_problem(request.data, request.hidden, request.seed).to(device)
    if request.what == "memory":
        step_of(request, tiny_problem(request.hidden).to(device))()  # loads, and compiles, all code
        step = step_of(request, problem)

        def twice() -> None:
            step()
            step()

        grown, method = memory.peak_growth(twice, device)
        return {"peak_mb": grown / 1e6, "method": method}
    step = step_of(request, problem)
    clock = measure.clock_of(device)
    first = clock.time(step)
    eager = step_of(replace(request, candidate=request.candidate.removesuffix(peers.COMPILED)), problem)
    eager()
    timings = measure.interleave({"layer": step, "eager": eager}, repeat=10, budget_s=5.0, clock=clock)
    return {"first_s": first, "ms": timings["layer"].ms, "eager_ms": timings["eager"].ms}


def main() -> None:
    """Answers the request on standard input."""
    serve(lambda request: measure_request(Request(**request)))


if __name__ == "__main__":
    main()
