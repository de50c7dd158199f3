"""Holds the builds of a program: one for each set of inputs that need gradients, which are made on demand."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.modules import sdfg_files
from dacergnn.modules.building import Turns, building
from dacergnn.modules.lowered_program import PlannedProgram, lowered
from dacergnn.modules.variant import Mask, Variant
from dacergnn.modules.ways.way import Way
from dacergnn.modules.writes import Writes
from dacergnn.program import Program
from dacergnn.progress import working
from dacergnn.runtime import plan_cache
from dacergnn.runtime.cuda_device import allows_tf32
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.runtime.stacks import Gate, Stacks
from dacergnn.runtime.transformed import is_transformed
from dacergnn.sdfg_passes import Compilation
from dacergnn.sdfg_passes.gradient_program import gradient_program

_Way = TypeVar("_Way", bound=Way)


@dataclass(frozen=True)
class Gradients:
    """Describes the compiled program that computes the gradients of another program.

    Args:
        program: Takes inputs of the other one, then gradients of its results, and returns gradients of its inputs.
        inputs: Positions of the inputs that it takes.
        seeds: Positions of the results whose gradients it takes.
        wrt: Positions of the inputs that its results belong to.
    """

    program: CompiledProgram
    inputs: tuple[int, ...]
    seeds: tuple[int, ...]
    wrt: tuple[int, ...]


class CompiledProgram(PlannedProgram):
    """Holds a program and its builds; all layers that run it share the object. Get one from `compiled_program`.

    Args:
        compile_other: Compiles the programs that belong to this one, as that of its gradients (`compiled_program`).
    """

    ways: Sequence[Way] = ()
    """The ways to run it; a call takes the first that returns results."""

    def __init__(
        self,
        program: ProgramSource,
        dtype: torch.dtype,
        index: torch.dtype,
        config: Config,
        profile: Profile,
        sparse: frozenset[str] = frozenset(),
        *,
        compile_other: Callable[..., CompiledProgram],
        shared: bool = False,
    ) -> None:
        own = replace(config, memory=None, scratch=None, caching=config.caching_within_memory)
        super().__init__(program, dtype, index, own, profile, sparse, shared=shared)
        self.step_config = config
        """Its options, with the limit of memory for a step."""
        self.compile_other = compile_other
        self._variants: dict[Mask, Variant] = {}
        self._turns = Turns()
        self.writes: Writes | None = None
        """Belongs to the layer that has called the program last; None under a limit of memory, without copies."""
        self._gradients: dict[Mask, Gradients | None] = {}
        self._inference: Executable | None = None
        self._features: weakref.WeakKeyDictionary[HeteroGraph, weakref.ref[HeteroGraph]] = weakref.WeakKeyDictionary()

    # Builds

    @property
    def variants(self) -> list[Variant]:
        """Returns the builds so far, oldest first."""
        return list(self._variants.values())

    @property
    def masks(self) -> list[Mask]:
        """Returns the inputs that need gradients in calls that have builds, oldest first."""
        return list(self._variants)

    def has(self, mask: Mask) -> bool:
        """Tells whether the build for calls in which the inputs in ``mask`` need gradients is there."""
        return mask in self._variants

    def variant(self, mask: Mask) -> Variant:
        """Returns the build for calls in which the inputs in ``mask`` need gradients."""
        variant = self._variants.get(mask)
        if variant is None:
            with self._turns.of(mask):
                variant = self._variants.get(mask)
                if variant is None:
                    with working(self.work(mask)):
                        variant = self._variants[mask] = self._build(mask)
        return variant

    def inference(self) -> Executable:
        """Returns the forward of the build for calls in which no input needs gradients."""
        if self._inference is None:
            self._inference = self.variant(self.no_gradients).forward
        return self._inference

    def work(self, mask: Mask) -> str:
        """Describes the making of a build, for users."""
        element = str(self.dtype).removeprefix("torch.")
        return f"compiling {self.title} ({element}, {'training' if True in mask else 'inference'})"

    def code(self, mask: Mask) -> LoweredProgram:
        """Returns the code for calls in which the inputs in ``mask`` need gradients; it need not be built."""
        return self._variants[mask].program if mask in self._variants else super().code(mask)

    def others(
        self, default: Variant, guard: Callable[[], AbstractContextManager[object]], graph: HeteroGraph
    ) -> list[Variant]:
        """Returns builds by plans that the model rates better for a graph than that of ``default``.

        Args:
            guard: Returns a lock for the time in which one program is compiled.
        """
        from dacergnn.tuning.tuned import promising  # imported only where programs are tuned

        wrt, made = [*default.program.wrt], list[Variant]()
        options: Any = {"shared": self.shared, "guard": guard}
        for compilation in promising(self.sdfg, wrt, self.config, self.index_type, graph, **options):
            with guard():
                program = self._lower(compilation, tuned=True)
            self._build_parts(program)
            made.append(self._loaded(program))
        return made

    def prefer(self, mask: Mask, variant: Variant) -> None:
        """Has all later calls with ``mask`` run a build, also in later processes."""
        self._variants[mask] = variant
        if not any(mask):
            self._inference = variant.forward
        plan_cache.keep(self._key_of_winner(mask), self.name, variant.program)

    def _build(self, mask: Mask) -> Variant:
        program = self._built(mask)
        self._planned.pop(mask)
        if not self._target.has_architectures and self.config.cuda_arch is not None:
            config = replace(self.config, implementation="cuda")
            self._same(config)._built(mask)
        return self._loaded(program)

    def _loaded(self, program: LoweredProgram) -> Variant:
        with building():
            return self._load(program, cache(partial(self._compiled, [*program.wrt], program.answers, keep=True)))

    def _built(self, mask: Mask) -> LoweredProgram:
        """Returns the program after all passes, whose library is in the cache of builds."""
        program = self.code(mask)
        self._build_parts(program)
        return program

    def _build_parts(self, program: LoweredProgram) -> None:
        tf32 = program.forward.has_tf32 and allows_tf32()
        parts = [(part.name, part.source(tf32=tf32)) for part in program.parts]
        self.executable_class.build(parts, self._architectures)

    def _made(self, compilation: Compilation) -> Variant:
        """Builds SDFGs as they are."""
        with building():
            forward, backward = lowered(compilation)
            results = len(Program(compilation.forward).outputs) - len(compilation.saved)
            program = LoweredProgram(forward, backward, results, tuple(compilation.wrt))
            self._build_parts(program)
            return self._load(program, lambda: compilation)

    def _load(self, program: LoweredProgram, compile_again: Callable[[], Compilation]) -> Variant:
        load = self.executable_class
        asked = frozenset(program.asked)
        forward = load(program.forward, program.results, self._architectures)
        if program.backward is None:
            return Variant(program, forward, None, (), (), frozenset(), frozenset(), compile_again, asked)
        backward = load(program.backward, None, self._architectures)
        forward.encodings = tuple(dict.fromkeys((*forward.lowered.encodings, *backward.lowered.encodings)))
        slots = tuple(self._taken.index(n) for n in program.wrt)
        sources = program.sources(self._taken)
        kept = frozenset([i for kind, i in sources if kind == "input"] + [*map(self._taken.index, program.again)])
        read = frozenset([i for kind, i in sources if kind == "output"])
        return Variant(program, forward, backward, sources, slots, kept, read, compile_again, asked)

    def gradients(self, mask: Mask) -> Gradients | None:
        """Returns the program of the gradients of the inputs in ``mask``, itself differentiable; None for no inputs.

        Backwards that nobody differentiates run the builds of `variant`, which compute nothing twice.
        """
        if mask not in self._gradients:
            with building():
                self._gradients[mask] = self._make_gradients(mask)
        return self._gradients[mask]

    def _make_gradients(self, mask: Mask) -> Gradients | None:
        wrt = [n for n, needed in zip(self._taken, mask, strict=True) if needed]
        made = gradient_program(self.sdfg, wrt)
        if made is None:
            return None
        program = self.of_text(made.text, self.index)
        program.title = f"gradients of {self.title}"
        return Gradients(
            program,
            tuple(map(self._taken.index, made.inputs)),
            tuple(map(self.outputs.index, made.seeds)),
            tuple(map(self._taken.index, made.wrt)),
        )

    def save(self, folder: Path) -> list[Path]:
        """Writes the SDFGs of every step, a page that shows them, and a record of them; returns the SDFGs' paths.

        It takes the build with the most gradients, since that can do all that the other builds can.
        """
        if not self._variants:
            return []
        mask = max(self._variants, key=sum)
        asked = [name for name, needed in zip(self._taken, mask, strict=True) if needed]
        variant = self._variants[mask]
        sizes = {} if self.profile == TYPICAL else self.profile.sizes
        return sdfg_files.write(folder, self.key, variant.compilation, asked, variant.results, sizes)

    # Other programs

    def of_index(self, index: torch.dtype) -> CompiledProgram:
        """Returns the same program for graphs with other indices."""
        return self._same(self.step_config, index)

    def of_text(self, text: str, index: torch.dtype, **options: Any) -> CompiledProgram:
        """Returns another program with the options of this one, but for those that name arrays."""
        config = replace(self.config, plan=None, cache=(), recompute=(), tune="off", **options)
        return self.compile_other(ProgramSource(text, ()), self.dtype, index, config, self.profile)

    def _same(self, config: Config, index: torch.dtype | None = None) -> CompiledProgram:
        """Returns the same program with other options."""
        sparse = frozenset(self.sparse)
        return self.compile_other(
            self.program, self.dtype, index or self.index, config, self.profile, sparse, shared=self.shared
        )

    # Calls

    def way(self, kind: type[_Way]) -> _Way | None:
        """Returns the program's way of a kind, for reports."""
        return next((way for way in self.ways if isinstance(way, kind)), None)

    def __call__(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Runs on ``graph``; differentiable with respect to the inputs that require it."""
        if self._arrays is not None:
            features, arrays = self._arrays.make(graph, inputs)
            if features.index_dtype is not self.index:  # there are too many nonzeros
                return self.of_index(features.index_dtype)(graph, inputs)
            if not self._variants and not self._planned:
                self.profile = Profile.of(features)
            self._features[graph] = weakref.ref(features)
            return self.run(features, arrays)
        return self.run(graph, inputs)

    def features(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns ``graph`` with the sizes of the sparse features of the last call on it."""
        reference = self._features.get(graph)
        features = None if reference is None else reference()
        return graph if features is None else features

    def run(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None) -> tuple[Tensor, ...]:
        """Runs on the arrays that builds take; differentiable as well.

        Args:
            inputs: The arrays; without those that ``stacks`` makes, and then its parts.
        """
        for way in self.ways:
            results = way.run(graph, inputs, stacks)
            if results is not None:
                return results
        raise AssertionError(f"{self.title} has no way to run")

    def stacked(
        self, graph: HeteroGraph, tensors: list[Tensor], stacks: Stacks | None, gate: Gate | None = None
    ) -> tuple[Tensor, ...]:
        """Runs on the inputs that ``stacks`` does not make, in order, followed by its parts; differentiable as well.

        Args:
            gate: Is called with the arrays that torch makes of differentiated parts.
        """
        if stacks is None:
            return self(graph, tensors)
        # Parts are read in place where all ways can; otherwise, and for autograd, torch joins them first.
        differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if self._takes_parts and not differentiated and not is_transformed():
            return self.run(graph, tensors, stacks)
        parts = tensors[len(tensors) - stacks.count :]
        try:
            made = stacks.arrays(parts, gate)
        except RuntimeError:
            if not self.sparse:
                self.inference().prepare(graph, stacks).inputs.check(tensors)  # names the part
            raise
        others = iter(tensors)
        return self(graph, [made[name] if name in made else next(others) for name in self.inputs])

    @cached_property
    def _takes_parts(self) -> bool:
        return all(way.takes_parts for way in self.ways)
