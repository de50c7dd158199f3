"""Programs up to the names of their arrays and the order of inputs and of independent operators.

Operators are listed as the results ask for them: what a statement reads comes before it, in the order of reading. An
array is called by the number at which it is met. Two programs with the same listing are the same graph of operators.
"""

from __future__ import annotations

from dataclasses import replace

import dace

from dacergnn.library_nodes import GraphOperator, Statement, Traversal
from dacergnn.library_nodes.form import statement_text
from dacergnn.program import Program
from dacergnn.program.listing import map_refs
from dacergnn.sdfg_passes import Compilation

Names = dict[str, str]


def forward_listing(sdfg: dace.SDFG, names: Names | None = None) -> list[str]:
    """The operators that the first result depends on, which are all of them; ``names`` is filled with new names."""
    program = Program(sdfg)
    return _listing(program, program.outputs[:1], {} if names is None else names)


def plan_listing(plan: Compilation) -> list[str]:
    """Forward and backward; a gradient is called after its input, the backward lists them by these names."""
    names: Names = {}
    lines = forward_listing(plan.forward, names)
    if plan.backward is None:
        return lines
    lines.append(f"saved: {', '.join(sorted(names[n] for n in plan.saved))}")
    backward = Program(plan.backward)
    names |= {n: "grad" for n in backward.inputs if n not in names}
    gradients = sorted(zip([names[n] for n in plan.wrt], backward.outputs, strict=True))
    return [*lines, *_listing(backward, [g for _, g in gradients], names), f"gradients: {[n for n, _ in gradients]}"]


def _listing(program: Program, results: list[str], names: Names) -> list[str]:
    lines: list[str] = []
    done: list[GraphOperator] = []
    makers = {name: operator for operator in program.operators for name in operator.written_arrays}

    def name(array: str) -> str:
        if array not in names:
            shape = ", ".join(map(str, program.shape(array)))
            names[array] = f"a{len(names)}_{program.space(array)}[{shape}]"
        return names[array]

    def renamed(statement: Statement) -> Statement:
        expr = map_refs(statement.expr, lambda r: replace(r, name=name(r.name)))
        return replace(statement, expr=expr, target=replace(statement.target, name=name(statement.target.name)))

    def visit(array: str) -> None:
        operator = makers.get(array)
        if operator is None or operator in done:
            return
        done.append(operator)
        for statement in operator.statements:
            for ref in statement.reads:
                visit(ref.name)
        texts = [statement_text(renamed(s)) for s in operator.statements]
        kept = sorted(name(n) for n in operator.locals)
        schedule = operator.schedule_by if isinstance(operator, Traversal) else ""
        lines.append(f"{type(operator).__name__} over {operator.space} {schedule}; {kept}; {operator.encodings}")
        lines.extend(f"    {text}" for text in texts)

    for array in results:
        visit(array)
    assert len(done) == len(program.operators), "an operator that no result depends on"
    return [*lines, f"return {[name(r) for r in results]}"]
