"""Runs as the process that measures a model: all candidates in turns, or the peak memory of one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dacergnn.api import explain, optimize
from dacergnn.bench import memory
from dacergnn.bench.calls import deviation, inference, random_like, training_step
from dacergnn.bench.measure import clock_of, interleave
from dacergnn.bench.process import reason, serve
from dacergnn.bench.subject import Subject
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.plan import Plan
from dacergnn.runtime.pool import POOL

ORIGINAL = "original"
"""Names the candidate that is not compiled; the others are named by their strategy of caching."""
TOLERANCE = 1e-3
"""A result is wrong if it is farther from that in float64, unless the original in float32 is about as far off."""

Made = tuple[nn.Module, tuple[Any, ...]]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns {"results": one row for each candidate}, or {"peak_mb": ...} of the only one."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(request["threads"])
    subject = Subject(**request["subject"])

    def make(name: str) -> Made:
        model, arguments = subject.made()
        if name == ORIGINAL:
            return model, arguments
        plan = Plan.from_json(request["plan"]) if request["plan"] else None
        compiled = optimize(model, config=Config(caching=name, plan=plan))
        if not compiled_parts(compiled):
            raise DacergnnError(f"{subject}: nothing of this model is compiled; dacergnn.explain says why.")
        return compiled, arguments

    if request["what"] == "memory":
        return {"peak_mb": _peak(make, request["candidates"][0], torch.device(subject.device))}
    return {"results": _times(make, request)}


def _peak(make: Callable[[str], Made], name: str, device: torch.device) -> float:
    """Returns the most MB that two training steps take beside what is in use before, once all code is loaded."""
    memory.return_freed()
    training_step(*make(name))()
    made = make(name)
    POOL.clear()
    step = training_step(*made)
    grown, _ = memory.peak_growth(lambda: [step(), step()], device)
    return grown / 1e6


def _times(make: Callable[[str], Made], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Validates every candidate, then times those that are right, mode by mode."""
    rows: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, Callable[[], Any]]] = {mode: {} for mode in request["modes"]}
    expected = _exact(make)
    usual = 0.0
    for name in request["candidates"]:
        row = rows[name] = {"status": "ok", "note": "" if expected else "not compared: the original has no float64"}
        try:
            model, arguments = make(name)
            step = training_step(model, arguments, seed=random_like)
            if expected:
                row["max_error"] = error = _error(model, step, expected)
                usual = error if name == ORIGINAL else usual
                if not error <= max(TOLERANCE, 2 * usual):
                    row |= {"status": "wrong", "note": f"differs from the original in float64 by {error:.1e}"}
                    continue
            step()
            if name != ORIGINAL:
                builds = [b for layer in explain(model).layers for b in layer.builds if b.gradients]
                row["saved_mb"] = sum(build.saved_bytes for build in builds) / 1e6
        except Exception as error:  # a candidate's failure is a result
            row |= {"status": "failed", "note": reason(error)}
            continue
        for mode, calls in steps.items():
            calls[name] = step if mode == "train" else inference(model, arguments)
            calls[name]()
    for mode, calls in steps.items():
        clock = clock_of(torch.device(request.get("device", "cpu")))
        timings = interleave(calls, request["repeat"], request["budget_s"], clock=clock) if calls else {}
        for name, timing in timings.items():
            rows[name] |= timing.as_json(f"{mode}_")
    return [{"candidate": name, **row} for name, row in rows.items()]


def _exact(make: Callable[[str], Made]) -> Sequence[Tensor]:
    """Returns results and gradients of the original in float64; nothing if it does not run so."""
    model, arguments = make(ORIGINAL)
    exact = copy.deepcopy(model).double().eval()
    try:
        outputs, gradients = training_step(exact, tree_map_only(Tensor, _double, arguments), seed=random_like)()
    except Exception:  # a model of users may be for one element type alone
        return []
    return [*outputs, *gradients]


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


def _error(model: nn.Module, step: Callable[[], tuple[list[Tensor], list[Tensor]]], exact: Sequence[Tensor]) -> float:
    """Returns the largest deviation of results and gradients, in eval mode, which has no dropout."""
    trains = model.training
    model.eval()
    outputs, gradients = step()
    model.train(trains)
    return max(deviation(a.detach(), b.detach()) for a, b in zip([*outputs, *gradients], exact, strict=True))


if __name__ == "__main__":
    serve(answer)
