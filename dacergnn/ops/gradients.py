"""Lets DaCe differentiate graph operators, by the rules of `sdfg_passes.differentiate`, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dace
from dace import Memlet, registry
from dace.autodiff.base_abc import BackwardContext, BackwardImplementation, BackwardResult

from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.form import GRADIENT, Ref
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.listing import Listing, map_refs
from dacergnn.program.view import SYMBOLS
from dacergnn.sdfg_passes.differentiate import derive

_TOTAL = "total_"
_VALUE = "value_"


@registry.autoregister_params(node_type=GraphOperator, name="dacergnn")
class GraphOperatorBackward(BackwardImplementation):
    """Makes a nested SDFG of graph operators that adds to the gradients; it computes needed forward values again."""

    @staticmethod
    def backward(
        forward_node: Any,
        context: BackwardContext,
        given_gradients: list[str | None],
        required_gradients: list[str | None],
    ) -> tuple[Any, BackwardResult]:
        outputs = [name for name in given_gradients if name is not None]
        wanted = [name for name in required_gradients if name is not None]
        forward = _listing(forward_node, context, outputs)
        derived = derive(forward, wanted)
        backward = derived.backward
        again = forward.statements if derived.saved else []
        backward = replace(
            backward,
            inputs=tuple(n for n in backward.inputs if n not in derived.saved)
            + tuple(n for n in forward.inputs if derived.saved and n not in backward.inputs),
            statements=[*again, *backward.statements],
            arrays={**forward.arrays, **backward.arrays},
        )
        backward.drop_unused()
        read = {r.name for s in backward.statements for r in s.reads}
        backward.inputs = tuple(n for n in backward.inputs if n in read)
        gradients = dict(zip(derived.wrt, backward.outputs, strict=True))
        totals = {name: (forward.arrays[name], gradients.get(name)) for name in wanted}
        node = _nest(forward_node.name, backward, totals, context)
        return node, BackwardResult(
            required_grad_names={name: _TOTAL + name for name in wanted},
            given_grad_names={name: GRADIENT + _VALUE + name.removeprefix(PREFIX) for name in outputs},
        )


def _listing(node: GraphOperator, context: BackwardContext, outputs: list[str]) -> Listing:
    """Returns a node's statements with the names of its connectors, since DaCe connects arrays by name."""
    read = node.read_arrays

    def named(name: str) -> str:
        return (PREFIX if name in read else _VALUE) + name

    def renamed(ref: Ref) -> Ref:
        return replace(ref, name=named(ref.name))

    arrays = node.arrays(context.forward_sdfg, context.forward_state)
    statements = [replace(s, target=renamed(s.target), expr=map_refs(s.expr, renamed)) for s in node.statements]
    return Listing(
        {named(name): Rows(row_space(desc), row_shape(desc)) for name, desc in arrays.items()},
        tuple(map(named, read)),
        tuple(named(name.removeprefix(PREFIX)) for name in outputs),
        statements,
    )


def _nest(label: str, backward: Listing, totals: dict[str, tuple[Rows, str | None]], context: BackwardContext) -> Any:
    """Adds the backward program as a nested SDFG, which adds its results, if there are any, to the gradients."""
    dtype = next(iter(context.forward_sdfg.arrays.values())).dtype
    nested: Any = backward.build(f"{label}_backward", dtype)
    last = nested.add_state_after(nested.start_block, "accumulate")
    for name, (rows, gradient) in totals.items():
        total = _TOTAL + name
        nested.add_array(total, [1 if rows.space == "ONE" else SYMBOLS[rows.space], *rows.shape], dtype)
        indices: Any = {f"i{axis}": f"0:{extent}" for axis, extent in enumerate(nested.arrays[total].shape)}
        element = ", ".join(indices)
        inputs = {"__value": Memlet(f"{gradient}[{element}]")} if gradient else {}
        last.add_mapped_tasklet(
            "accumulate", indices, inputs, f"__total = {'__value' if gradient else 0}",
            {"__total": Memlet(f"{total}[{element}]", wcr="lambda a, b: a + b")}, external_edges=True,
        )  # fmt: skip
        if gradient:
            nested.arrays[gradient].transient = True
    nested.arg_names = []
    symbols = {name: dace.symbol(name, dtype=dace.int64) for name in nested.free_symbols}
    # Without types, since DaCe infers them; dictionaries keep the same order in every process.
    inputs: Any = dict.fromkeys(backward.inputs)
    outputs: Any = dict.fromkeys(_TOTAL + name for name in totals)
    node = context.backward_state.add_nested_sdfg(nested, inputs, outputs, symbol_mapping=symbols)
    node.no_inline = True  # simplification would take the accumulation for a plain write
    return node
