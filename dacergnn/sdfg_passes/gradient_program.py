"""Makes a program of the gradients of a program, which can be compiled and differentiated like any other.

Before, as a program with an input x and a result y::

    for n in g.nodes(): n["y"] = exp(n["x"])

After, which takes x and the gradient of y, and returns the gradient of x::

    for n in g.nodes(): n["y"] = exp(n["x"])
    for n in g.nodes(): n["d_x"] = n["d_y"] * n["y"]

It computes the forward again. `differentiate` is for a backward that runs once: it makes two programs, and the second
reads what the first has saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dace

from dacergnn.library_nodes.form import GRADIENT, Statement
from dacergnn.program.listing import Listing, map_refs
from dacergnn.program.printer import print_program
from dacergnn.sdfg_passes.differentiate import derive

_PREFIX = "d_"


@dataclass(frozen=True)
class GradientProgram:
    """Holds the result of `gradient_program`.

    Args:
        text: The program, which returns one gradient for every name in ``wrt``.
        inputs: Inputs of the original program that it takes, in order.
        seeds: Results of the original program whose gradients it takes after the inputs.
        wrt: Inputs that get a gradient; no result depends on the others.
    """

    text: str
    inputs: tuple[str, ...]
    seeds: tuple[str, ...]
    wrt: tuple[str, ...]


def gradient_program(sdfg: dace.SDFG, wrt: Sequence[str]) -> GradientProgram | None:
    """Returns the program of the gradients of the inputs ``wrt``; None if no result depends on any of them.

    Args:
        sdfg: An inter-operator SDFG as it was parsed, one statement in each operator; stays as it is.
    """
    forward = Listing.of(sdfg)
    derived = derive(forward.copy(), wrt)
    if not derived.wrt:
        return None
    backward = derived.backward
    names = _names(forward, backward)
    joint = Listing(
        arrays={**forward.arrays, **{names[name]: rows for name, rows in backward.arrays.items()}},
        outputs=tuple(names[name] for name in backward.outputs),
        statements=[*forward.statements, *[_renamed(s, names) for s in backward.statements]],
        item=forward.item,
    )
    joint.drop_unused()
    inputs = tuple(name for name in forward.inputs if name in joint.arrays)
    seeds = tuple(name for name in forward.outputs if names.get(GRADIENT + name) in joint.arrays)
    joint.inputs = (*inputs, *[names[GRADIENT + name] for name in seeds])
    built = joint.build(f"{sdfg.name}_gradient", next(iter(sdfg.arrays.values())).dtype)
    return GradientProgram(print_program(built), inputs, seeds, tuple(derived.wrt))


def _names(forward: Listing, backward: Listing) -> dict[str, str]:
    """Returns new names for the backward's own arrays, which the forward does not use and which may get gradients."""
    names: dict[str, str] = {}
    taken = {*forward.arrays}
    for name in backward.arrays:
        if name in forward.arrays:
            names[name] = name
            continue
        wanted = _PREFIX + name.removeprefix(GRADIENT) if name.startswith(GRADIENT) else name
        candidate, count = wanted, 0
        while candidate in taken:
            count += 1
            candidate = f"{wanted}_{count}"
        taken.add(candidate)
        names[name] = candidate
    return names


def _renamed(statement: Statement, names: dict[str, str]) -> Statement:
    expr = map_refs(statement.expr, lambda ref: replace(ref, name=names[ref.name]))
    return replace(statement, target=replace(statement.target, name=names[statement.target.name]), expr=expr)
