"""A program compiled for one element and index type: builds forward and backward for what needs gradients."""

from __future__ import annotations

import ast
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import dace
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dacergnn.config import Config
from dacergnn.frontends import Program
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.modules.elements import ELEMENTS, check_elements
from dacergnn.modules.retained import RUN_AGAIN, is_retained
from dacergnn.modules.sparse import SparseArrays
from dacergnn.plan import Plan
from dacergnn.program import Program as View
from dacergnn.program.flatten import FlatProgram, flatten
from dacergnn.program.names import sdfg_name
from dacergnn.program.parser import parse_flat
from dacergnn.runtime import plan_cache
from dacergnn.runtime.build import build_all
from dacergnn.runtime.cuda_device import allows_tf32, architectures
from dacergnn.runtime.cuda_executable import CUDAExecutable
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.runtime.stacks import Stacks
from dacergnn.sdfg_passes import Compilation, compile_program

_INDICES: dict[torch.dtype, Typeclass] = {torch.int32: dace.int32, torch.int64: dace.int64}
Mask = tuple[bool, ...]
Answers = tuple[tuple[str, str], ...]
_BUILDING = threading.RLock()  # DaCe keeps global state


@dataclass(frozen=True)
class Variant:
    """Executables for one set of inputs that need gradients, and how their arrays correspond.

    The forward returns ``results`` outputs of the program, then the saved arrays. The backward's inputs are
    picked from (gradients, inputs, saved arrays, outputs) by ``sources``; ``slots`` are the inputs
    that its outputs belong to.
    """

    forward: Executable
    backward: Executable | None
    results: int
    sources: tuple[tuple[str, int], ...]
    slots: tuple[int, ...]
    make_plan: Callable[[], Compilation]

    @property
    def giver(self) -> Executable | None:
        """The forward, if a backward that comes once overwrites what it has saved."""
        saves = len(self.forward.lowered.outputs) > self.results
        return self.forward if saves and self.backward is not None and self.backward.overwrites else None

    @property
    def plan(self) -> Compilation:
        """The SDFGs behind the executables, and how they came about; runs the passes, keeping what each leaves."""
        with _BUILDING:
            return self.make_plan()


class CompiledProgram:
    """A program, compiled on demand; shared by all layers that run it. Get one from `compiled_program`."""

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype,
        index: torch.dtype,
        config: Config,
        profile: Profile,
        sparse: frozenset[str] = frozenset(),
    ) -> None:
        check_elements("the layer", dtype, config.implementation)
        self.program = program
        flat = self._flat()
        self.dtype = dtype
        self.index = index
        self.config = config
        self.profile = profile
        """What choices are made for; with sparse features, that of the first call."""
        self.name: str = flat.name
        self.inputs = [sdfg_name(name) for name in flat.arrays]
        """The arrays that calls take."""
        self.sparse = [name for name in self.inputs if name in sparse]
        arrays = [(name, ast.dump(node)) for name, node in flat.arrays.items()]
        # All that the parser reads: helper functions are inlined, constants bound.
        self._text = (flat.name, arrays, [ast.dump(n) for n in flat.body], self.sparse)
        self._architectures = architectures(config.cuda_arch) if config.implementation == "cuda" else ()
        self._variants: dict[Mask, Variant] = {}
        self._last: Variant | None = None
        self._inference: Variant | None = None
        self._features: Callable[[], HeteroGraph | None] | None = None

    def _flat(self) -> FlatProgram:
        return flatten(self.program.source, dict(self.program.bindings), self.program.then)

    @cached_property
    def sdfg(self) -> dace.SDFG:
        """The program as it was parsed, and rewritten for sparse features, before all passes."""
        return self._parsed if self._arrays is None else self._arrays.program.sdfg

    @property
    def _parsed(self) -> dace.SDFG:
        with _BUILDING:
            return parse_flat(self._flat(), ELEMENTS[self.dtype])

    @cached_property
    def _arrays(self) -> SparseArrays | None:
        """What makes the arrays that builds take, where features are sparse."""
        return SparseArrays.of(self._parsed, self.inputs, self.sparse) if self.sparse else None

    @cached_property
    def _taken(self) -> list[str]:
        """The arrays that builds take."""
        return self.inputs if self._arrays is None else [*self._arrays.program.arrays]

    def variant(self, mask: Mask) -> Variant:
        """The build for inputs of which those in ``mask`` need gradients."""
        found = self._variants.get(mask)
        if found is None:
            with _BUILDING:
                found = self._variants.get(mask)
                if found is None:
                    found = self._variants[mask] = self._build(mask)
        self._last = found
        return found

    def inference(self) -> Executable:
        """The forward of the build for inputs of which none needs gradients."""
        found = self._inference
        if found is None:
            found = self._inference = self.variant((False,) * len(self._taken))
        self._last = found
        return found.forward

    def _build(self, mask: Mask) -> Variant:
        wrt, program = self._built(mask)
        if self.config.implementation == "cpu" and self.config.cuda_arch is not None:
            config = replace(self.config, implementation="cuda")
            sparse = frozenset(self.sparse)
            compiled_program(self.program, self.dtype, self.index, config, self.profile, sparse)._built(mask)
        return self._load(program, cache(partial(self._plan, wrt, program.answers, keep=True)))

    def _built(self, mask: Mask) -> tuple[list[str], LoweredProgram]:
        """What there is a gradient of, and the program, whose library is in the cache of builds."""
        wrt = [n for n, needed in zip(self._taken, mask, strict=True) if needed]
        key = plan_cache.plan_key(*self._text, self.dtype, self.index, self.config, self.profile, mask)
        kept = plan_cache.load(key, self.name)
        program = kept or self._lower(self._tuned(wrt) if self._tunes else self._plan(wrt))
        tf32 = program.forward.has_tf32 and allows_tf32()
        build_all([(part.name, part.source(tf32=tf32)) for part in program.parts], self._architectures)
        if kept is None:
            plan_cache.keep(key, self.name, program)
        return wrt, program

    def _plan(self, wrt: list[str], answers: Answers = (), *, keep: bool = False) -> Compilation:
        config = replace(self.config, plan=Plan(answers)) if answers else self.config
        return compile_program(self.sdfg, wrt, config, _INDICES[self.index], self.profile, keep=keep)

    @property
    def _tunes(self) -> bool:
        return self.config.tune != "off" and self.config.implementation == "cpu"

    def _tuned(self, wrt: list[str]) -> Compilation:
        from dacergnn.tuning.tuned import tuned  # the others need nothing of it

        graph = self.profile.origin()
        return tuned(self.sdfg, wrt, self.config, _INDICES[self.index], graph) if graph is not None else self._plan(wrt)

    def _lower(self, plan: Compilation) -> LoweredProgram:
        backward = None if plan.backward is None else lower(plan.backward)
        answers = plan.plan.answers if self._tunes else ()
        return LoweredProgram(lower(plan.forward), backward, len(View(self.sdfg).outputs), tuple(plan.wrt), answers)

    def _load(self, program: LoweredProgram, make_plan: Callable[[], Compilation]) -> Variant:
        load = CUDAExecutable if program.forward.implementation == "cuda" else Executable
        forward = load(program.forward, program.results, self._architectures)
        if program.backward is None:
            return Variant(forward, None, program.results, (), (), make_plan)
        backward = load(program.backward, None, self._architectures)
        slots = tuple(self._taken.index(n) for n in program.wrt)
        return Variant(forward, backward, program.results, program.sources(self._taken), slots, make_plan)

    def save(self, folder: Path) -> list[Path]:
        """Write the SDFGs of every step of the last call's build as ``NN_pass[_backward].sdfg``."""
        folder.mkdir(parents=True, exist_ok=True)
        variant = self._last
        if variant is None:
            return []
        written: list[Path] = []
        for number, step in enumerate(variant.plan.steps):
            for role, sdfg in step.sdfgs.items():
                path = folder / f"{number:02d}_{step.name}{'' if role == 'forward' else '_' + role}.sdfg"
                sdfg.save(str(path))
                written.append(path)
        return written

    @property
    def variants(self) -> list[Variant]:
        """The builds so far, oldest first."""
        return list(self._variants.values())

    def __call__(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Run on ``graph``; differentiable with respect to the inputs that require it."""
        if self._arrays is not None:
            features, arrays = self._arrays.make(graph, inputs)
            if features.index_dtype is not self.index:  # so many nonzeros
                others = features.index_dtype, self.config, self.profile, frozenset(self.sparse)
                return compiled_program(self.program, self.dtype, *others)(graph, inputs)
            if not self._variants:
                self.profile = Profile.of(features)
            self._features = weakref.ref(features)
            return self._run(features, arrays)
        return self._run(graph, inputs)

    def measured(self, graph: HeteroGraph) -> HeteroGraph:
        """The graph that tells the sizes of a call on ``graph``, the last one: that with its sparse features."""
        features = None if self._features is None else self._features()
        return graph if features is None else features

    def _run(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            mask = tuple([t.requires_grad for t in inputs])
            if True in mask:
                return _Run.apply(self, graph, mask, *inputs)  # pyright: ignore[reportUnknownMemberType, reportReturnType]
        executable = self.inference()
        return tuple(executable.run(executable.prepare(graph), inputs)[0])

    def stacked(self, graph: HeteroGraph, tensors: list[Tensor], stacks: Stacks | None) -> tuple[Tensor, ...]:
        """Run on the inputs that ``stacks`` does not make, in order, then on its parts; differentiable likewise."""
        if stacks is None:
            return self(graph, tensors)
        # Kernels of the CPU take parts where they lie; on devices, and for autograd, torch puts them together.
        in_place = self.config.implementation != "cuda" and not self.sparse
        if not in_place or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            parts = tensors[len(tensors) - stacks.count :]
            try:
                made = stacks.arrays(parts)
            except RuntimeError:
                if not self.sparse:
                    self.inference().prepare(graph, stacks).inputs.check(tensors)  # names the part
                raise
            others = iter(tensors)
            return self(graph, [made[name] if name in made else next(others) for name in self.inputs])
        executable = self.inference()
        return tuple(executable.run(executable.prepare(graph, stacks), tensors)[0])


class _Run(torch.autograd.Function):
    """Autograd for eager calls; the torch.library operator of `operator.py` serves traced ones."""

    @staticmethod
    def forward(
        ctx: Any, program: CompiledProgram, graph: HeteroGraph, mask: Mask, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        variant = program.variant(mask)
        results, lease = variant.forward.run(variant.forward.prepare(graph), list(inputs))
        ctx.graph, ctx.variant, ctx.count, ctx.lease, ctx.given = graph, variant, len(inputs), lease, False
        kept = {(kind, index) for kind, index in variant.sources}
        ctx.shapes = [t.shape for t in inputs]
        ctx.save_for_backward(
            *[t if ("input", i) in kept else None for i, t in enumerate(inputs)],
            *[t if ("output", i) in kept else None for i, t in enumerate(results)],
        )
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        variant: Variant = ctx.variant
        results: list[Tensor | None] = [None] * ctx.count
        if variant.backward is not None:
            kept = ctx.saved_tensors  # once: checkpoints allow no more
            if ctx.given:
                raise RuntimeError(RUN_AGAIN)
            outputs = list(kept[ctx.count :])
            giver = None if is_retained() else variant.giver
            given = None if giver is None else ctx.lease
            if ctx.lease is not None:
                outputs += variant.forward.saved(variant.forward.prepare(ctx.graph), ctx.lease)
            if given is not None:
                ctx.lease, ctx.given = None, True
            pools = {"input": kept[: ctx.count], "output": outputs, "gradient": gradients}
            arrays = [pools[kind][i] for kind, i in variant.sources]
            values = variant.backward(variant.backward.prepare(ctx.graph, giver=giver), arrays, given)
            for slot, value in zip(variant.slots, values, strict=True):
                results[slot] = value.view(ctx.shapes[slot])
        return (None, None, None, *results)


@lru_cache(maxsize=1024)
def compiled_program(
    program: Program,
    dtype: torch.dtype,
    index: torch.dtype,
    config: Config,
    profile: Profile,
    sparse: frozenset[str] = frozenset(),
) -> CompiledProgram:
    """The compiled form of a program, its choices made for graphs like ``profile``; equal programs share it.

    Args:
        sparse: Arrays that come as sparse tensors.
    """
    with _BUILDING:
        return CompiledProgram(program, dtype, index, config, profile, sparse)
