"""Compiled programs in what torch.export writes: one operator, which carries the program as text.

The text is all that a process needs to compile the same program again: the program in program form, the types of
elements and indices, the answers of its plan, and the version of this package. It depends on no layer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dacergnn._version import VERSION
from dacergnn.config import Config
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import pytree as pytree  # registers graphs
from dacergnn.graph.edge_tensors import graph_of_tensor
from dacergnn.graph.operator import operator
from dacergnn.graph.profile import TYPICAL
from dacergnn.graph.traced import TracedEncodings
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.programs import compiled_program
from dacergnn.modules.recorded_runs import RecordedRun, owned, recording
from dacergnn.plan import Plan
from dacergnn.program.printer import print_program
from dacergnn.runtime.plan_cache import compiler_version

FORMAT = 2
"""The version of the text; it changes whenever older texts would be read wrongly."""


@dataclass(frozen=True)
class ExportedProgramText:
    """Holds a compiled program as an exported model carries it.

    Args:
        format: The version of these fields.
        version: The version of this package that compiled the program, for errors.
        compiler: A hash of the compiler's sources; another compiler makes its own choices.
        name: The title of the layer, for errors.
        program: The program in program form.
        inputs: Names of the arrays that the operator takes, in order.
        dtype: Type of elements.
        single_typed: Whether the program is for graphs whose relations join one source and one destination type.
        implementation: The target that the program was compiled for.
        plan: The answers of its plan.
    """

    format: int
    version: str
    compiler: str
    name: str
    program: str
    inputs: tuple[str, ...]
    dtype: str
    single_typed: bool
    implementation: str | None
    plan: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """Returns one line of JSON; equal programs have equal lines."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ExportedProgramText:
        """Returns what `to_json` wrote.

        Raises:
            UnsupportedCallError: A version of this package with other fields wrote the text.
        """
        fields: dict[str, Any] = json.loads(text)
        if fields.get("format") != FORMAT:
            raise UnsupportedCallError(
                f"The exported program was written by dacergnn {fields.get('version')} in format "
                f"{fields.get('format')}, but dacergnn {VERSION} reads format {FORMAT}; install that version, or "
                "export the model again."
            )
        fields["inputs"] = tuple(fields["inputs"])
        fields["plan"] = tuple([(question, answer) for question, answer in fields["plan"]])
        return cls(**fields)

    def compiled(self, *, differentiated: bool = False, config: Config | None = None) -> CompiledProgram:
        """Returns the compiled program; it is as it was exported if the same compiler makes it.

        Args:
            differentiated: Whether inputs need gradients. The plan answers nothing then, since it is that of inference.
            config: How it is compiled; None for the target and the plan that it was exported with.
        """
        if config is None:
            plan = Plan(self.plan) if self.compiler == compiler_version() and not differentiated else None
            config = Config(implementation=self.implementation, plan=plan, tune="off")
        profile = replace(TYPICAL, single_typed=self.single_typed)
        dtype: torch.dtype = getattr(torch, self.dtype)
        return compiled_program(ProgramSource(self.program, ()), dtype, torch.int32, config, profile, shared=True)


def export_text(compiled: CompiledProgram, single_typed: bool) -> str:
    """Returns the text of a compiled program, whose choices are made for the graphs that it was compiled for."""
    return ExportedProgramText(
        format=FORMAT,
        version=VERSION,
        compiler=compiler_version(),
        name=compiled.title,
        program=print_program(compiled.sdfg),
        inputs=tuple(compiled.inputs),
        dtype=str(compiled.dtype).removeprefix("torch."),
        single_typed=single_typed,
        implementation=compiled.config.implementation,
        plan=compiled.answers,
    ).to_json()


@lru_cache(maxsize=1024)
def program_of(text: str) -> ExportedProgramText:
    """Returns the program that an operator carries."""
    return ExportedProgramText.from_json(text)


@lru_cache(maxsize=1024)
def compiled_of(
    text: str, *, differentiated: bool = False, config: Config | None = None
) -> tuple[CompiledProgram, list[int]]:
    """Returns the compiled program of a text, and the positions of its inputs among the operator's arrays."""
    exported = program_of(text)
    compiled = exported.compiled(differentiated=differentiated, config=config)
    compiled.title = exported.name
    return compiled, [exported.inputs.index(name) for name in compiled.inputs]


def _run(
    edges: Tensor, src_type: Tensor | None, dst_type: Tensor | None, sizes: Sequence[int],
    arrays: Sequence[Tensor], text: str,
) -> Any:  # fmt: skip
    differentiated = torch.is_grad_enabled() and any(array.requires_grad for array in arrays)
    compiled, order = compiled_of(text, differentiated=differentiated)
    graph = graph_of_tensor(edges, src_type, dst_type, sizes)
    if program_of(text).single_typed and not graph.single_typed:
        raise UnsupportedCallError(
            f"{program_of(text).name}: the program was exported for graphs whose relations join one source type with "
            "one destination type, and a relation of this graph joins several; export the model with such a graph."
        )
    return compiled(graph, [arrays[i] for i in order])


@operator("program")
def program_operator(
    edges: Tensor, src_type: Tensor | None, dst_type: Tensor | None, sizes: Sequence[int],
    arrays: Sequence[Tensor], program: str,
) -> list[Tensor]:  # fmt: skip
    """Runs a compiled program.

    Args:
        edges: int32 [4, E] of `dacergnn.graph.traced`.
        src_type: [NS] types of sources; None for one type.
        dst_type: [ND] types of destinations; None for one type.
        sizes: Numbers of sources, destinations, edge types, node types, and whether both ends are different nodes.
        arrays: The arrays in the order of ``ExportedProgramText.inputs``.
        program: `ExportedProgramText` as JSON.
    """
    with torch.no_grad():
        return owned([t.data for t in _run(edges, src_type, dst_type, sizes, arrays, program)])


@lru_cache(maxsize=1024)
def _results(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Returns row space and row shape of each result."""
    return compiled_of(text)[0].result_rows


@program_operator.register_fake
def _(edges: Tensor, src_type: Any, dst_type: Any, sizes: Any, arrays: Sequence[Tensor], program: str) -> list[Tensor]:
    num_src, num_dst, num_types, node_types, _ = sizes
    rows = {"NS": num_src, "ND": num_dst, "E": edges.size(1), "R": num_types, "T": node_types, "ONE": 1}
    return [arrays[0].new_empty(rows[space], *shape) for space, shape in _results(program)]


@operator("program_backward")
def _program_backward(
    gradients: Sequence[Tensor], edges: Tensor, src_type: Tensor | None, dst_type: Tensor | None,
    sizes: Sequence[int], arrays: Sequence[Tensor], program: str, wanted: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    """Returns the gradients of the arrays at the positions ``wanted``; the forward is computed again."""
    leaves = {i: arrays[i].detach().requires_grad_() for i in wanted}
    inputs = [leaves.get(i, a) for i, a in enumerate(arrays)]
    with recording():
        run = RecordedRun(arrays, leaves, _run(edges, src_type, dst_type, sizes, inputs, program))
    return run.gradients(wanted, gradients)


@_program_backward.register_fake
def _(
    gradients: Any, edges: Any, src_type: Any, dst_type: Any, sizes: Any,
    arrays: Sequence[Tensor], program: str, wanted: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    return [arrays[i].new_empty(arrays[i].shape) for i in wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    edges, src_type, dst_type, ctx.sizes, arrays, ctx.program = inputs
    ctx.wanted = [i for i, array in enumerate(arrays) if array.requires_grad]
    ctx.save_for_backward(edges, src_type, dst_type, *arrays)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    edges, src_type, dst_type, *arrays = ctx.saved_tensors
    made = torch.ops.dacergnn.program_backward(
        list(gradients), edges, src_type, dst_type, ctx.sizes, arrays, ctx.program, ctx.wanted
    )
    results: list[Tensor | None] = [None] * len(arrays)
    for position, gradient in zip(ctx.wanted, made, strict=True):
        results[position] = gradient
    return None, None, None, None, results, None


program_operator.register_autograd(_backward, setup_context=_setup_context)


def run_traced(compiled: CompiledProgram, graph: TracedEncodings, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the results of a program in a call that torch.export traces."""
    text = export_text(compiled, graph.single_typed())
    own = graph.edges
    # Types are two optional tensors, since packages of AOTInductor lose empty lists of tensors.
    results = torch.ops.dacergnn.program(graph.tensor, own.src_type, own.dst_type, graph.numbers, list(inputs), text)
    return tuple(results)
