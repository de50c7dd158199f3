"""Computes the layers in float64, slowly and plainly, as references for every candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.relational.candidate import Built, make_loss
from benchmarks.relational.parameters import Parameters
from benchmarks.relational.problem import IGNORED, Problem
from dacergnn.bench.calls import deviation
from dacergnn.errors import DacergnnError

FUNCTIONS = ("rgcn", "rgat", "hgt", "hgt_linear")
"""hgt_linear is DGL's HGT: no biases and no GELU before the output projection."""


@dataclass(frozen=True)
class Reference:
    """Holds the float64 output [N, hidden] and the gradients of the loss by features and parameters."""

    out: Tensor
    x_grad: Tensor
    gradients: Parameters


_ROWS = {"rgcn": 6, "rgat": 12, "hgt": 12, "hgt_linear": 12}
"""Feature rows per edge that are in memory at once, forward and backward."""
UNCOMPARED = "not compared with a reference, which takes too much memory"


def reference_memory(function: str, problem: Problem) -> int:
    """Estimates the bytes that `compute_reference` takes."""
    return 8 * _ROWS.get(function, 0) * len(problem.src) * problem.hidden


def compute_reference(function: str, problem: Problem, shared: Parameters) -> Reference:
    """Runs one of FUNCTIONS forward and backward in float64."""
    x = problem.x.double().requires_grad_()
    p = {name: value.to(x, copy=True).requires_grad_() for name, value in shared.items()}
    if function == "rgcn":
        out = _rgcn(p, x, problem)
    elif function == "rgat":
        out = _rgat(p, x, problem)
    elif function in FUNCTIONS:
        out = _hgt(p, x, problem, linear=function == "hgt_linear")
    else:
        raise DacergnnError(f"function '{function}' has no reference; there are {', '.join(FUNCTIONS)}")
    make_loss(problem)(out).backward()
    empty = {name: torch.zeros_like(value) if value.grad is None else value.grad for name, value in p.items()}
    assert x.grad is not None
    return Reference(out.detach(), x.grad, empty)


def max_error(reference: Reference, built: Built, problem: Problem, out: Any, train: bool) -> float:
    """Returns the largest deviation from the reference over output and, after a training step, all gradients.

    Each tensor's deviation is relative to its largest reference value.
    """
    rows = problem.labels != IGNORED
    errors = [deviation(_as_rows(out, problem)[rows], reference.out[rows])]
    if train:
        grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in built.inputs]
        errors.append(deviation(torch.cat(grads), reference.x_grad))
        errors += [slot.error(reference.gradients)[1] for slot in built.slots]
    return max(errors)


def _as_rows(out: Any, problem: Problem) -> Tensor:
    if not isinstance(out, Mapping):
        return out.detach()
    typed: Mapping[str, Tensor] = out
    missing = {f"t{i}": problem.x.new_zeros(n, problem.hidden) for i, n in enumerate(problem.ntype_sizes)}
    return torch.cat([typed.get(name, rows).detach() for name, rows in missing.items()])


def _typed(rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    return torch.cat([part @ w for part, w in zip(rows.split(sizes), weight.unbind(), strict=True)])


def _sum_to(rows: Tensor, index: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, *rows.shape[1:]).index_add(0, index, rows)


def _softmax(logits: Tensor, index: Tensor, count: int) -> Tensor:
    top = logits.new_full((count,), -math.inf).scatter_reduce(0, index, logits.detach(), "amax")
    weights = torch.exp(logits - top[index])
    return weights / _sum_to(weights, index, count)[index]


def _rgcn(p: Parameters, x: Tensor, problem: Problem) -> Tensor:
    share = 1.0 / torch.bincount(problem.dst_pairs.of_edge).double()[problem.dst_pairs.of_edge]
    messages = _typed(x[problem.src], p["weight"], problem.etype_sizes) * share[:, None]
    return _sum_to(messages, problem.dst, problem.num_nodes) + x @ p["root"] + p["bias"]


def _rgat(p: Parameters, x: Tensor, problem: Problem) -> Tensor:
    src, dst, sizes = problem.src, problem.dst, problem.etype_sizes
    sent, held = _typed(x[src], p["weight"], sizes), _typed(x[dst], p["weight"], sizes)
    logits = functional.leaky_relu((held @ p["q"] + sent @ p["k"]).squeeze(-1), 0.2)
    alpha = _softmax(logits, dst, problem.num_nodes)
    return _sum_to(sent * alpha[:, None], dst, problem.num_nodes) + p["bias"]


def _hgt(p: Parameters, x: Tensor, problem: Problem, linear: bool) -> Tensor:
    src, dst, d = problem.src, problem.dst, problem.hidden
    nodes, edges, ntype = list(problem.ntype_sizes), problem.etype_sizes, problem.ntype
    kqv = _typed(x, p["kqv_weight"], nodes)
    k, q, v = (kqv if linear else kqv + p["kqv_bias"][ntype]).split(d, dim=-1)
    logits = (_typed(k[src], p["att"], edges) * q[dst]).sum(-1) * p["pri"][problem.etype] / math.sqrt(d)
    alpha = _softmax(logits, dst, problem.num_nodes)
    summed = _sum_to(_typed(v[src], p["msg"], edges) * alpha[:, None], dst, problem.num_nodes)
    if linear:
        new = _typed(summed, p["out_weight"], nodes)
    else:
        new = _typed(functional.gelu(summed), p["out_weight"], nodes) + p["out_bias"][ntype]
    gate = torch.sigmoid(p["skip"])[ntype][:, None]
    return gate * new + (1 - gate) * x
