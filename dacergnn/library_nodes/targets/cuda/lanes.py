"""Writes CUDA loops over the elements of a row, or over those elements that a lane holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, ShapeOf, size
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.targets.emit import INDEX, Emitter, Scope, offset
from dacergnn.library_nodes.traversal.lanes import Lanes

UNROLL = '_Pragma("unroll")\n'
MAX_UNROLLED = 16
"""The most runs of a lane for which a loop over them is unrolled."""

Read = Callable[[Ref, str, bool], str]
"""A function from a reference, an offset, and whether that is the element ``at`` (``held`` of the lane) to code."""


class LaneEmitter(Emitter):
    """Emits loops of one thread over all elements of a row (`loops`), or over those that its lane holds (`spread`)."""

    def __init__(
        self, shapes: ShapeOf, lanes: Lanes, read: Read, divisor: Callable[[Ref], str | None] = lambda _: None
    ) -> None:
        super().__init__(shapes, lambda ref: ref.name, simd=False)
        self.lanes = lanes
        self.read = read
        self.divisor = divisor
        """Names the array that holds a row as divisors (`divisor.cuh`); None if there is none."""
        self._over: Shape | None = None
        self.loads: dict[str, str] = {}

    def _value(self, expr: Expr, scopes: list[Scope], index: tuple[str, ...]) -> str:
        by = expr.args[1] if isinstance(expr, Op) and expr.name == "div" else None
        divisors = self.divisor(by) if isinstance(by, Ref) and not by.transposed else None
        if divisors is None:
            return super()._value(expr, scopes, index)
        assert isinstance(expr, Op) and isinstance(by, Ref)
        depth = len(shape_of(expr, self.shapes))
        shape = self.shapes(by)
        value = self._value(expr.args[0], scopes[: depth + 1], index[:depth])
        divisor = f"{divisors}[{offset(shape, index[: len(shape)])}]"
        return self._name(scopes[depth], (expr, index[:depth]), f"{value} / {divisor}")

    def _element(self, ref: Ref, index: tuple[str, ...]) -> str:
        shape = self.shapes(ref)
        same = self._over is not None and not ref.transposed and size(shape) == size(self._over)
        return self.read(ref, offset(shape, index), same and index == INDEX[: len(index)])

    def _loop(self, index: str, extent: int, body: str, innermost: bool, total: str = "") -> str:
        if extent == 1:
            return f"{{ constexpr int {index} = 0;\n(void){index};\n{body}\n}}"
        return f"{UNROLL}for (int {index} = 0; {index} < {extent}; ++{index}) {{\n{body}\n}}"

    def load(self, pointer: str, constant: bool) -> str:
        """Returns the element ``at`` of the row behind a pointer, read with the others of its run."""
        kind = f"dacergnn::cuda::load_run<{self.lanes.vector}, {str(constant).lower()}>"
        name = self.loads.setdefault(f"{kind}({pointer} + start)", f"run{len(self.loads)}")
        return f"Value({name}[v])"

    def spread(self, expr: Expr, shape: Shape, store: Callable[[str], str], before: str = "", after: str = "") -> str:
        """Returns a loop over the elements ``at`` that the lane holds, with lines before and after each of its runs.

        If rows have several strips, ``strip`` is the number of the block's strip.
        """
        lanes, width = self.lanes, size(shape)
        vector = lanes.vector
        self._over, self.loads = shape, {}
        outer, *inner = self.lines(expr, shape, lambda _, value: store(value))
        self._over = None
        body = "\n".join(line for lines in inner for line in lines)
        runs = lanes.held(width) // vector
        strips = lanes.strips(width) > 1
        run = "run" if strips else "j"
        names = self._indices(shape) | {"held": f"{run} * {vector} + v"}
        body = "\n".join([*(f"const int {n} = {text};" for n, text in names.items() if _uses(body, n)), body])
        if _uses(body, "at"):
            body = f"const int at = start + v;\n{body}"
        lines = [f"const auto {name} = {load};" for load, name in self.loads.items()]
        lines += [before, self._loop("v", vector, body, True), after]
        inside = "\n".join(line for line in lines if line)
        if width % (runs * lanes.round):
            inside = f"if (start < {width}) {{\n{inside}\n}}"
        if _uses(inside, "start"):
            start = f"const int start = (j * {lanes.lanes} + dacergnn::cuda::lane_of<{lanes.lanes}>()) * {vector};"
            inside = f"{start}\n{inside}"
        if strips:
            inside = f"const int j = strip * {runs} + run;\n(void)j;\n{inside}"
        loop = f"for (int {run} = 0; {run} < {runs}; ++{run}) {{\n{inside}\n}}"
        return "\n".join([*outer, UNROLL + loop if runs <= MAX_UNROLLED else loop])

    def _indices(self, shape: Shape) -> dict[str, str]:
        """Returns the indices of element ``at``: constants if a round of lanes stays in one row of the last axis."""
        last, per = shape[-1], self.lanes.round
        if len(shape) == 2 and last % per == 0:
            rounds = last // per
            return {"h": f"j / {rounds}", "f": f"at - j / {rounds} * {last}"}
        sizes = [prod(shape[n + 1 :]) for n in range(len(shape))]
        parts = [("at" if s == 1 else f"at / {s}") for s in sizes]
        return {INDEX[n]: p if n == 0 else f"{p} % {shape[n]}" for n, p in enumerate(parts)}


def _uses(code: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", code) is not None


def lane_sums(emitter: LaneEmitter, own: str, body: Expr, shape: Shape) -> str:
    """Returns C++ that sums ``body`` over its last axis into the array ``own``, which all lanes of the team get."""
    held, last, results = emitter.lanes, shape[-1], size(shape[:-1])
    lanes, per = held.lanes, held.round
    finish = f"for (int n = 0; n < {results}; ++n) {own}[n] = dacergnn::cuda::team_sum<{lanes}>({own}[n]);"
    before = f"{UNROLL}for (int n = 0; n < {results}; ++n) {own}[n] = Value(0);"
    if results == 1:
        loop = emitter.spread(body, shape, lambda value: f"{own}[0] += {value};")
    elif last % per == 0:
        loop = emitter.spread(body, shape, lambda value: f"{own}[j / {last // per}] += {value};")
    elif per % last == 0 and last % held.vector == 0:
        before += f"\nValue parts[{held.held(size(shape)) // held.vector}] = {{}};"
        loop = emitter.spread(body, shape, lambda value: f"parts[j] += {value};")
        finish = f"dacergnn::cuda::segment_sums<{lanes}, {last // held.vector}>(parts, {own});"
    else:
        each = f"{UNROLL}for (int n = 0; n < {results}; ++n) {own}[n] += at / {last} == n ? {{0}} : Value(0);"
        loop = emitter.spread(body, shape, each.format)
    return "\n".join([before, loop, finish])
