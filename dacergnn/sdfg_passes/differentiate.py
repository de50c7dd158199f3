"""Differentiates a program into the program of its gradients, with one rule per kind of statement (Hector 3.5).

The backward program consists of the same operators. A value gathered along a map receives its gradient by a reduction
along that map. ``Y = X W`` gives ``dX = dY W^T`` and ``dW = X^T dY``. A maximum hands its gradient to the rows that
attain it, ties in equal shares. The backward reads arrays of the forward, which therefore saves them (`cache_all`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import dace

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import (
    GRADIENT,
    WEIGHT_PRODUCTS,
    Expr,
    Gemm,
    Op,
    Ref,
    Shape,
    Statement,
)
from dacergnn.library_nodes.node import copied
from dacergnn.library_nodes.operators import OPERATORS, op
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program import Program, verify
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes.gradient_arrays import GradientArrays
from dacergnn.sdfg_passes.held_values import read_held_values
from dacergnn.sdfg_passes.operand_gradients import structural_gradients


@dataclass(frozen=True)
class Gradient:
    """Holds the result of `differentiate`.

    ``forward`` returns the outputs of the program, then the arrays in ``saved``. ``backward`` takes the gradients of
    the outputs, then the inputs of the forward and the arrays in ``saved`` that it reads. It returns one gradient for
    every name in ``wrt`` (inputs that no output depends on are left out).
    """

    forward: dace.SDFG
    backward: dace.SDFG
    saved: list[str]
    wrt: list[str]


@dataclass(frozen=True)
class Derivation:
    """Holds the result of `derive`: a `Gradient` as listings."""

    forward: Listing
    backward: Listing
    saved: list[str]
    wrt: list[str]


def differentiate(sdfg: dace.SDFG, wrt: Sequence[str], kept: Collection[str] = ()) -> Gradient:
    """Returns the forward and the backward of ``sdfg``, with gradients for the inputs ``wrt``.

    Gradients that are not asked for, and values that only they need, are not generated.

    Args:
        kept: Arrays to save anyway. Like results, they replace operands where gradients can be computed from them.
    """
    program = Program(sdfg)
    unknown = [n for n in wrt if n not in program.inputs]
    if unknown:
        raise ProgramError(f'wrt: "{unknown[0]}" is not an input of {sdfg.name}; inputs: {", ".join(program.inputs)}.')
    taken = [n for n in sdfg.arrays if n.startswith(GRADIENT)]
    if taken:
        raise ProgramError(f'"{taken[0]}": names that start with {GRADIENT} are kept for gradients; rename the array.')
    derived = derive(Listing.of(sdfg), wrt, kept)
    backward = derived.backward.build(f"{sdfg.name}_backward", next(iter(sdfg.arrays.values())).dtype)
    verify(backward)
    forward = copied(sdfg)
    for name in derived.forward.outputs[len(program.outputs) :]:
        Program(forward).mark_output(name)
    return Gradient(forward, backward, derived.saved, derived.wrt)


def derive(forward: Listing, wrt: Sequence[str], kept: Collection[str] = ()) -> Derivation:
    """Does the same as `differentiate`, on listings."""
    return _Differentiation(forward, list(wrt), kept).run()


def origins(program: Listing) -> dict[str, set[str]]:
    """Returns the inputs on which each array depends through operators that have a derivative."""
    found = {name: {name} for name in program.inputs}
    for statement in program.statements:
        own = found.setdefault(statement.target.name, set())
        own.update(*[found[r.name] for r in _differentiable(statement.expr)])
    return found


class _Differentiation:
    def __init__(self, forward: Listing, wrt: list[str], kept: Collection[str]) -> None:
        self.forward = forward
        self.at_hand = {*forward.outputs, *kept}
        self.wrt = wrt
        self.arrays = GradientArrays(forward)
        self.backward = self.arrays.backward
        self.active = self._active()
        self.again: dict[str, str] = {}

    def run(self) -> Derivation:
        forward, backward = self.forward, self.backward
        for name in forward.outputs:
            if name in self.active:
                self.arrays.add_input(GRADIENT + name, forward.arrays[name])
                self.arrays.accumulate(Ref(name), forward.space(name), Ref(GRADIENT + name))
        for statement in reversed(forward.statements):
            if statement.target.name in self.arrays.contributions:
                with at(statement.place):
                    self._statement(statement)
        reached = [n for n in self.wrt if n in self.arrays.contributions]
        for name in reached:
            backward.outputs += (self.arrays.result(name),)
        backward.statements = read_held_values(backward)
        backward.drop_unused()
        read = {r.name for s in backward.statements for r in s.reads}
        backward.inputs = tuple(n for n in backward.inputs if n in read or n.startswith(GRADIENT))
        saved = [n for n in backward.inputs if not n.startswith(GRADIENT) and n not in forward.inputs]
        outputs = (*forward.outputs, *(n for n in saved if n not in forward.outputs))
        return Derivation(replace(forward, outputs=outputs), backward, saved, reached)

    def _active(self) -> set[str]:
        """Returns the arrays that depend on the inputs ``wrt`` through operators that have a derivative."""
        return {name for name, inputs in origins(self.forward).items() if not inputs.isdisjoint(self.wrt)}

    def _statement(self, statement: Statement) -> None:
        gemm = statement.gemm
        seed = Ref(self.arrays.gradient(statement.target.name), statement.target.path)
        self.arrays.place = statement.place
        if gemm is not None:
            self._product(statement, gemm, seed)
        elif statement.op in ("max=", "min="):
            self._extremum(statement, seed)
        else:
            result = statement.target if statement.op == "=" else None
            self._pull(statement.expr, seed, statement.space, result)

    def _extremum(self, statement: Statement, seed: Ref) -> None:
        space, name, path = statement.space, statement.target.name, statement.target.path
        owner, shape = self.forward.space(name), self.forward.shape(statement.target)
        value = Ref(self._found_again(statement))
        attains = op("eq", statement.expr, replace(value, path=path))
        count = self.arrays.emit(f"count_{name}", space, path, [attains], shape, owner)
        # NaN equals nothing: all rows of its group receive NaN, as in torch.
        known = op("eq", value, value)
        equal = op("div", op("mul", replace(seed, path=""), known), op("mul", op("clamp_min", Ref(count), 1.0), known))
        share = self.arrays.emit(f"share_{name}", owner, "", [equal], shape)
        self._pull(statement.expr, op("mul", Ref(share, path), attains), space, None)

    def _found_again(self, statement: Statement) -> str:
        """Returns the array of an extremum. Extrema of node values are not saved but computed again: counting the rows
        that attain them reads all these rows anyway."""
        name = statement.target.name
        at_hand = not self.forward.is_internal(name) or name in self.backward.inputs
        if at_hand or any(r.path == "" for r in statement.reads):
            return name
        return self._again(statement)

    def _summed_again(self, ref: Ref) -> Ref:
        """Returns the rows of a product. Sums of outer products are not saved but computed again: they are as wide as
        the matrix of an edge, and their operands are saved anyway."""
        made = self.forward.producer(ref.name)
        if made is None or not _is_outer(made.expr) or ref.name in self.at_hand:
            return ref
        return replace(ref, name=self._again(made))

    def _again(self, statement: Statement) -> str:
        """Computes a statement of the forward again, once; returns the array."""
        name = statement.target.name
        if name not in self.again:
            self.again[name] = array = self.arrays.fresh(name)
            self.backward.arrays[array] = self.forward.arrays[name]
            for ref in statement.reads:
                if ref.name not in self.backward.arrays:
                    self.arrays.add_input(ref.name, self.forward.arrays[ref.name])
            self.backward.statements.append(replace(statement, target=replace(statement.target, name=array)))
        return self.again[name]

    def _product(self, statement: Statement, gemm: Gemm, seed: Ref) -> None:
        """Differentiates ``Y += s * X W`` and ``dW += s * X^T Y``: each gradient is a product of the other two."""
        if gemm.kind in WEIGHT_PRODUCTS:
            self._product_of_weights(statement, gemm, seed)
            return
        space, x, w = statement.space, gemm.x, gemm.w
        if gemm.kind == "linear":
            shape = shape_of(Op("linear", (x, w)), self.forward.shape)
            seed = replace(seed, view=shape) if shape != self.forward.shape(statement.target) else seed
            to_x: Expr = Op("linear", (seed, replace(w, transposed=not w.transposed)))
            rows = self._summed_again(x) if w.name in self.active else x
            to_w = Op("outer_prod", (seed, rows) if w.transposed else (rows, seed))
        else:
            to_x, to_w = Op("linear", (w, replace(seed, transposed=True))), Op("linear", (x, seed))
        if gemm.scale is not None and gemm.scale.name in self.active:
            # One product serves the scale and X: s receives (dY W^T) . X.
            rows = self.arrays.emit("rows", space, "", [to_x], self.forward.shape(x))
            to_x = Ref(rows)
            reduced: Expr = op("dot_prd", Ref(rows), x)
            for _ in range(len(self.forward.shape(x)) - 1 - len(self.forward.shape(gemm.scale))):
                reduced = op("sum", reduced)
            self.arrays.accumulate(gemm.scale, space, reduced)
        for ref, gradient in ((x, to_x), (w, to_w)):
            if ref.name in self.active:
                scaled = gradient if gemm.scale is None else Op("mul", (gemm.scale, gradient))
                self.arrays.accumulate(replace(ref, transposed=False), space, scaled)

    def _product_of_weights(self, statement: Statement, gemm: Gemm, seed: Ref) -> None:
        """Differentiates ``Y = A B`` and ``P = A^T Y``, head by head."""
        space, x, w = statement.space, gemm.x, gemm.w
        shape = shape_of(statement.expr, self.forward.shape)
        seed = replace(seed, view=shape) if shape != self.forward.shape(statement.target) else seed
        if gemm.kind == "compose":
            b = shape_of(w, self.forward.shape)
            to_x: Expr = Op("compose", (seed, replace(w, transposed=not w.transposed)))
            to_w: Expr = Op("inner", (seed, x) if w.transposed else (x, seed), b[:-2])
            w = replace(w, transposed=False)
        else:
            to_x, to_w = Op("compose", (w, replace(seed, transposed=True))), Op("compose", (x, seed))
        for ref, gradient in ((x, to_x), (w, to_w)):
            if ref.name in self.active:
                self._accumulate_seen(ref, space, gradient)

    def _accumulate_seen(self, ref: Ref, space: str, term: Expr) -> None:
        """Accumulates the gradient of the value that ``ref`` refers to, which may be transposed."""
        if ref.transposed:
            shape = shape_of(ref, self.forward.shape)
            term = Ref(self.arrays.emit("tmp", space, "", [term], shape), transposed=True)
        self.arrays.accumulate(replace(ref, transposed=False), space, term)

    def _pull(self, expr: Expr, seed: Expr, space: str, result: Expr | None) -> None:
        """Hands the gradient ``seed`` of an expression on to the references in it."""
        if isinstance(expr, Ref) and expr.name in self.active:
            self._accumulate_seen(expr, space, seed)
        if not isinstance(expr, Op) or self.active.isdisjoint(r.name for r in _differentiable(expr)):
            return
        if expr.name == "div" and self._pull_softmax(expr, seed, space, result):
            return
        for arg, gradient, shape in self._operands(expr, seed, space, result):
            if gradient is not None:
                self._pull(arg, self._reduce(gradient, shape, shape_of(arg, self.forward.shape)), space, None)

    def _pull_softmax(self, quotient: Op, seed: Expr, space: str, result: Expr | None) -> bool:
        """Differentiates ``y = p / t`` if ``p = exp(z)`` and t sums p over groups of rows; else returns False.

        With seed s, z receives ``(s - d) * y``, d the sums of ``s * y`` over these groups: neither p nor t is read.
        """
        power, total = quotient.args
        if not isinstance(power, Ref) or not isinstance(total, Ref):
            return False
        made, summed = self.forward.producer(power.name), self.forward.producer(total.name)
        if made is None or made != Statement(space, power, "=", made.expr) or summed is None:
            return False
        readers = self.forward.consumers(power.name), self.forward.consumers(total.name)
        if (
            not (isinstance(made.expr, Op) and made.expr.name == "exp")
            or summed != Statement(space, total, "+=", power)
            or (len(readers[0]), len(readers[1])) != (2, 1)
            or not all(map(self.forward.is_internal, (power.name, total.name)))
        ):
            return False
        value, owner = result or quotient, self.forward.space(total.name)
        name = GRADIENT + total.name
        sums = self.arrays.emit(name, space, total.path, [op("mul", seed, value)], self.forward.shape(total), owner)
        centered = op("sub", seed, Ref(sums, total.path))
        self._pull(made.expr.args[0], op("mul", centered, value), space, None)
        return True

    def _operands(
        self, expr: Op, seed: Expr, space: str, result: Expr | None
    ) -> Iterator[tuple[Expr, Expr | None, Shape]]:
        """Yields the operands with their gradients and the row shapes that these nominally have."""
        if expr.name not in OPERATORS:
            yield from structural_gradients(
                expr,
                seed,
                self.arrays.shape,
                lambda value, shape: Ref(self.arrays.emit("tmp", space, "", [value], shape)),
            )
            return
        # Results of nodes are mostly saved for readers; those of edges have more rows than operands at end points.
        is_input = isinstance(expr.args[0], Ref) and expr.args[0].name in self.forward.inputs
        at_hand = isinstance(result, Ref) and self._is_at_hand(result.name)
        by_operand = OPERATORS[expr.name].slope_of_either and not at_hand and (is_input or space not in ("NS", "ND"))
        y = expr if result is None or by_operand else result
        gradients = OPERATORS[expr.name].derivative(expr.args, seed, y)
        for arg, gradient in zip(expr.args, gradients, strict=True):
            yield arg, gradient, shape_of(expr, self.forward.shape)

    def _is_at_hand(self, name: str) -> bool:
        """Returns whether an array is saved anyway: as a result, by choice, or for the gradient of weights."""
        readers = self.forward.consumers(name)
        gemms = [s.gemm for s in readers]
        by_product = any(g and g.x.name == name and g.w.name in self.active for g in gemms)
        return name in self.at_hand or by_product or any(_is_outer(s.expr) for s in readers)

    def _reduce(self, gradient: Expr, nominal: Shape, wanted: Shape) -> Expr:
        """Sums a gradient of row shape ``nominal`` over the trailing axes along which its operand was broadcast."""
        for rank in range(len(nominal), len(wanted), -1):
            actual = len(shape_of(gradient, self.arrays.shape))
            if actual < rank:  # constant along this axis
                gradient = op("mul", gradient, float(nominal[rank - 1]))
            elif isinstance(gradient, Op) and gradient.name == "mul":
                gradient = op("dot_prd", *gradient.args)
            else:
                gradient = op("sum", gradient)
        return gradient


def _is_outer(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name == "outer_prod"


def _differentiable(expr: Expr) -> Iterator[Ref]:
    """Yields the references that are not inside a detach or a comparison."""
    if isinstance(expr, Ref):
        yield expr
    elif isinstance(expr, Op) and expr.name not in ("detach", "gt", "ge", "eq"):
        for arg in expr.args:
            yield from _differentiable(arg)
