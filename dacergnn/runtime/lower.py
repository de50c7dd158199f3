"""Lowers an SDFG with fixed access schemes to C++ through DaCe's code generator."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import dace
from dace import Memlet
from dace.codegen import codegen

from dacergnn.graph.spaces import ROW_SPACES, is_encoding
from dacergnn.library_nodes.launch_order import launched_together
from dacergnn.library_nodes.node import GraphOperator, copied, ordered_operators, row_shape, row_space
from dacergnn.library_nodes.plan import OperatorPlan
from dacergnn.runtime.statistics import element_type, with_exact_statistics
from dacergnn.target import Target, find


@dataclass(frozen=True)
class Buffer:
    """Describes an array of a lowered program: ``rows`` is its row space, ``elements`` the size of one row."""

    name: str
    rows: str
    shape: tuple[int, ...]
    elements: int
    first: int  # number of the group of operators that writes it; a group runs together
    last: int  # number of the last group that reads it
    over: tuple[str, ...] = ()  # arrays that it may replace in memory if its operator is their last reader


def argument(choice: str) -> str:
    """Returns the C function's argument for the value of a choice, such as "out/tile_rows"; no array has this name."""
    return "__" + choice.replace("/", "_")


@dataclass(frozen=True)
class Lowered:
    """Holds the C++ of a program, and what a caller of its function needs."""

    name: str
    code: str
    signature: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Buffer, ...]
    intermediates: tuple[Buffer, ...]
    encodings: tuple[str, ...]
    spaces: dict[str, tuple[str, tuple[int, ...]]]  # of the inputs: row space and row shape
    dtype: str
    implementation: str
    scratch: tuple[dict[str, int], ...]  # bytes per row of each row space, for each group of operators
    last_reads: dict[str, int]  # of the inputs: number of the last group that reads it
    schedule: dict[str, int]  # values of the choices that the code leaves to calls, such as "out/tile_rows"

    @property
    def has_tf32(self) -> bool:
        """Tells whether there is another build whose products take TF32 factors."""
        return find(self.implementation).has_tf32 and self.dtype == "float32"

    def source(self, *, tf32: bool = False) -> str:
        """Returns the code of a build."""
        return f"#define DACERGNN_TF32\n{self.code}" if tf32 else self.code


def lower(sdfg: dace.SDFG, saved: Collection[str] = (), *, clocked: bool = False) -> Lowered:
    """Generates the code of ``sdfg`` (left as it is); intermediates become arguments that the caller allocates.

    Args:
        saved: Inputs and outputs that only connect a forward with its backward; statistics among them have float32
            elements in programs of 16 bits. For callers, such an array has rows of two elements of 16 bits for one.
        clocked: Whether the code reads a clock before and behind each group of operators (`clocks.py`).
    """
    element = element_type(sdfg)
    sdfg, together = operator_groups(sdfg, saved)
    operators = [o for group in together for o in group]
    pairs = {pair for o in operators for pair in plan_of(o, sdfg).in_place}
    written = {name: k for k, group in enumerate(together) for o in group for name in o.written_arrays}
    read = {name: k for k, group in enumerate(together) for o in group for name in o.read_arrays}
    inputs = [n for n in sdfg.arg_names if n not in written]

    def shape_of(name: str) -> tuple[int, ...]:
        desc = sdfg.arrays[name]
        parts = desc.dtype.bytes // element.bytes
        return (*row_shape(desc), parts) if parts > 1 else row_shape(desc)

    def buffer(name: str) -> Buffer:
        desc, shape = sdfg.arrays[name], shape_of(name)
        over = tuple(sorted(other for other, own in pairs if own == name))
        return Buffer(name, row_space(desc), shape, prod(shape), written[name], read.get(name, written[name]), over)

    code, signature = _generate(sdfg, {name for pair in pairs for name in pair}, clocked=clocked)
    return Lowered(
        name=sdfg.name,
        code=code,
        signature=signature,
        inputs=tuple(inputs),
        outputs=tuple(buffer(n) for n in sdfg.arg_names if n in written),
        intermediates=tuple(buffer(n) for n, d in sdfg.arrays.items() if d.transient and n in written),
        encodings=tuple(n for n in sdfg.arrays if is_encoding(n)),
        spaces={n: (row_space(sdfg.arrays[n]), shape_of(n)) for n in inputs},
        dtype=str(element.to_string()),
        implementation=operators[0].implementation if operators else "cpu",
        scratch=_scratch(sdfg, together),
        last_reads={n: read[n] for n in inputs if n in read},
        schedule={
            choice: getattr(operator, name)
            for operator in operators
            for choice, name in _open(operator)
            if argument(choice) in signature
        },
    )


def operator_groups(sdfg: dace.SDFG, saved: Collection[str] = ()) -> tuple[dace.SDFG, list[list[GraphOperator]]]:
    """Returns the SDFG that `lower` makes code of, and its operators in the order in which they run, in groups."""
    sdfg = with_exact_statistics(sdfg, saved)
    return sdfg, _groups(sdfg)


def plan_of(operator: GraphOperator, sdfg: dace.SDFG) -> OperatorPlan:
    """Returns the plan of an operator of an SDFG with one state."""
    return operator.plan(operator.implementation, operator.arrays(sdfg, next(iter(sdfg.states()))))


def _open(operator: GraphOperator) -> list[tuple[str, str]]:
    """Returns the choices of an operator that the code leaves to calls, and the properties that hold them."""
    return [(f"{operator.statements[0].target.name}/{name}", name) for name in operator.run_time]


def _groups(sdfg: dace.SDFG) -> list[list[GraphOperator]]:
    """Returns the operators in the order in which they run, in groups that a device runs together."""
    state = next(iter(sdfg.states()))
    operators = ordered_operators(state)
    if operators and all(find(o.implementation).starts_together for o in operators):
        return launched_together(operators, {o: plan_of(o, sdfg).launches for o in operators})
    return [[o] for o in operators]


def _scratch(sdfg: dace.SDFG, together: Sequence[Sequence[GraphOperator]]) -> tuple[dict[str, int], ...]:
    scratch: list[dict[str, int]] = []
    for group in together:
        needs = Counter[str]()
        for operator in group:
            needs.update(plan_of(operator, sdfg).scratch)
        scratch += [dict(needs)] if needs else []
    return tuple(scratch)


def _run_together(operators: Sequence[GraphOperator], sdfg: dace.SDFG, state: dace.SDFGState) -> None:
    """Replaces operators that do not wait for each other by one tasklet."""
    target = find(operators[0].implementation)
    tasklet = target.expand(operators, [o.arrays(sdfg, state) for o in operators])
    tasklet.environments = {target.environment.full_class_path()}
    state.add_node(tasklet)
    known: set[tuple[Any, ...]] = set()
    for edge in [e for o in operators for e in state.all_edges(o)]:
        source = tasklet if edge.src in operators else edge.src
        goal = tasklet if edge.dst in operators else edge.dst
        ends = (source, edge.src_conn, goal, edge.dst_conn)
        if ends not in known:
            known.add(ends)
            state.add_edge(*ends, edge.data)
    state.remove_nodes_from(operators)


def _declare_sizes(sdfg: dace.SDFG) -> None:
    """Makes arguments of sizes that code uses but no array has: formats without pointers have no array of that size."""
    tasklets = [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.nodes.Tasklet)]
    words = {word for tasklet in tasklets for word in re.findall(r"\w+", tasklet.code.as_string)}
    for space in sorted(words & set(ROW_SPACES) - set(sdfg.symbols)):
        sdfg.add_symbol(space, dace.int64)


def _with_clocks(together: Sequence[list[Any]], state: dace.SDFGState) -> list[list[Any]]:
    """Returns the groups with a tasklet before and behind each of them, which reads a clock; adds these to a state."""
    ticks = [
        state.add_tasklet(f"tick_{k}", {}, {}, f"dacergnn::tick({k});", language=dace.Language.CPP)
        for k in range(len(together) + 1)
    ]
    return [[ticks[0]], *(nodes for group, tick in zip(together, ticks[1:], strict=True) for nodes in (group, [tick]))]


def _generate(sdfg: dace.SDFG, sharing: Collection[str], *, clocked: bool) -> tuple[str, tuple[str, ...]]:
    sdfg = copied(sdfg)
    state: dace.SDFGState = next(iter(sdfg.states()))
    together = _groups(sdfg)
    operators = [o for group in together for o in group]
    local_arrays = [name for o in operators for name in o.locals]
    target = find(operators[0].implementation if operators else None)
    steps = _with_clocks(together, state) if clocked else together
    for before, after in pairwise(steps):  # fix the order for which memory is planned
        for one, other in product(before, after):
            state.add_nedge(one, other, Memlet())
    for name, desc in sdfg.arrays.items():
        desc.transient = False
        if name in sharing:
            desc.may_alias = True
    with (
        dace.config.set_temporary("compiler", "cpu", "openmp_sections", value=False),
        dace.config.set_temporary("store_history", value=False),  # of expansions, with a copy of the whole SDFG
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Using sets for connectors")  # DaCe does so when it expands to an SDFG
        for group in together:
            if len(group) > 1:
                _run_together(group, sdfg, state)
        for operator in operators:
            for choice, name in _open(operator):
                symbol = sdfg.add_symbol(argument(choice), dace.int64)
                setattr(operator, name, dace.symbol(symbol, dace.int64))
        state.set_default_lineinfo(dace.dtypes.DebugInfo(0))  # DaCe would look for a line in the stack, node by node
        sdfg.expand_library_nodes()
        _declare_sizes(sdfg)
        for name in local_arrays:
            sdfg.remove_data(name)
        signature = tuple(sdfg.arglist())
        code = _cpp(sdfg, target) if target.generate is None else target.generate(sdfg)
    clock = f'#include "{target.clock}"\n' if clocked else ""
    return clock + code + target.call.format(name=sdfg.name), signature


def _cpp(sdfg: dace.SDFG, target: Target) -> str:
    """Returns the C++ that DaCe generates."""
    frame = next(c for c in codegen.generate_code(sdfg) if c.language == "cpp" and c.title == "Frame")
    # DaCe's build folder has a header with the program's hash; the cache takes the content as its key instead.
    code = "\n".join(line for line in frame.clean_code.splitlines() if "hash.h" not in line)
    # DaCe's header takes longer to compile than most programs.
    return code if target.prelude is None else code.replace("#include <dace/dace.h>", target.prelude)
