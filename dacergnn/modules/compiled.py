"""Compiles a program for one element type and index type: a build for each set of inputs that need gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRange
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.modules import sdfg_files
from dacergnn.modules.ahead import started, zeros_of
from dacergnn.modules.autograd import Gradients, Invocation, Mask, run
from dacergnn.modules.building import Turns, building
from dacergnn.modules.contest import Contest, Runner, searching
from dacergnn.modules.cuts import Cuts
from dacergnn.modules.exchanged import Exchanged, ExchangingGraph
from dacergnn.modules.memory_limit import Division, MemoryLimit
from dacergnn.modules.planned import PlannedProgram, lowered
from dacergnn.modules.streamed import Streams
from dacergnn.modules.variant import Variant
from dacergnn.modules.writes import Writes
from dacergnn.program import Program
from dacergnn.progress import working
from dacergnn.runtime import plan_cache
from dacergnn.runtime.cuda_device import allows_tf32
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.inputs import check_inputs
from dacergnn.runtime.needs import CountedSizes
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.runtime.stacks import Gate, Stacks
from dacergnn.runtime.transformed import is_transformed
from dacergnn.sdfg_passes import Compilation
from dacergnn.sdfg_passes.gradient_program import gradient_program


class CompiledProgram(PlannedProgram):
    """Compiles a program on demand; all layers that run it share the object. Get one from `compiled_program`."""

    def __init__(
        self,
        program: ProgramSource,
        dtype: torch.dtype,
        index: torch.dtype,
        config: Config,
        profile: Profile,
        sparse: frozenset[str] = frozenset(),
        *,
        shared: bool = False,
    ) -> None:
        own = replace(config, memory=None, scratch=None, caching=config.caching_within_memory)
        super().__init__(program, dtype, index, own, profile, sparse, shared=shared)
        if config.memory is not None and self._target.device != "cpu":
            raise DacergnnError(
                f"memory={config.memory!r} limits steps on the CPU, but arrays are on {self._target.device!r}; leave "
                "memory out, or move model and graph with .to('cpu')."
            )
        self._memory: dict[str, Any] = {"memory": config.memory, "scratch": config.scratch}
        self._cuts = Cuts(self, config, self._of_text)
        self._streams = Streams(self._cuts)
        self._limit = None if config.memory is None else MemoryLimit(config.memory, self._streams)
        self._variants: dict[Mask, Variant] = {}
        self._turns = Turns()
        self.writes: Writes | None = None
        """Belongs to the layer that has called the program last; None under a limit of memory, without copies."""
        self._gradients: dict[Mask, Gradients | None] = {}
        self._inference: Variant | None = None
        self._contests: dict[Mask, Contest[Variant]] = {}
        self._features: weakref.WeakKeyDictionary[HeteroGraph, weakref.ref[HeteroGraph]] = weakref.WeakKeyDictionary()

    def variant(self, mask: Mask) -> Variant:
        """Returns the build for calls in which the inputs in ``mask`` need gradients."""
        variant = self._variants.get(mask)
        if variant is None:
            with self._turns.of(mask):
                variant = self._variants.get(mask)
                if variant is None:
                    with working(self._work(mask)):
                        variant = self._variants[mask] = self._build(mask)
                    if self._races and mask not in self._raced:
                        self._contests[mask] = self._contest(mask, variant)
        return variant

    def take(self, mask: Mask, graph: HeteroGraph) -> tuple[Variant, Runner[Variant] | None]:
        """Returns the build for a call, and what `note` takes its seconds for."""
        variant = self.variant(mask)
        contest = self._contests.get(mask)
        return (variant, None) if contest is None else contest.take(graph)

    def note(self, mask: Mask, runner: Runner[Variant] | None, seconds: float, graph: HeteroGraph) -> None:
        """Takes the seconds of a call whose build `take` has chosen."""
        contest = self._contests.get(mask)
        if contest is not None:
            contest.note(runner, seconds, graph)

    def _work(self, mask: Mask) -> str:
        """Describes the making of a build, for users."""
        element = str(self.dtype).removeprefix("torch.")
        return f"compiling {self.title} ({element}, {'training' if True in mask else 'inference'})"

    def inference(self) -> Executable:
        """Returns the forward of the build for calls in which no input needs gradients."""
        variant = self._inference
        if variant is None:
            variant = self._inference = self.variant((False,) * len(self._taken))
        return variant.forward

    def _build(self, mask: Mask) -> Variant:
        program = self._built(mask)
        self._planned.pop(mask)
        if not self._target.has_architectures and self.config.cuda_arch is not None:
            config = replace(self.config, implementation="cuda")
            sparse = frozenset(self.sparse)
            device = compiled_program(
                self.program, self.dtype, self.index, config, self.profile, sparse, shared=self.shared
            )
            device._built(mask)
        return self._loaded(program)

    def _loaded(self, program: LoweredProgram) -> Variant:
        with building():
            return self._load(program, cache(partial(self._compiled, [*program.wrt], program.answers, keep=True)))

    def _built(self, mask: Mask) -> LoweredProgram:
        """Returns the program after all passes, whose library is in the cache of builds."""
        program = self._plan(mask)
        self._build_parts(program)
        return program

    def _contest(self, mask: Mask, default: Variant) -> Contest[Variant]:
        """Returns the race of a build against those that the model rates better."""

        def settle(winner: Variant) -> None:
            self._variants[mask] = winner
            if not any(mask):
                self._inference = winner
            del self._contests[mask]
            plan_cache.keep(self._key_of_winner(mask), self.name, winner.program)

        return Contest(self.title, default, partial(self._challengers, default), settle)

    def _challengers(self, default: Variant, graph: HeteroGraph) -> list[Variant]:
        """Returns builds by plans that the model rates better for a graph."""
        from dacergnn.tuning.tuned import promising  # imported only where programs are tuned

        wrt, made = [*default.program.wrt], list[Variant]()
        options: Any = {"shared": self.shared, "guard": searching}
        for compilation in promising(self.sdfg, wrt, self.config, self.index_type, graph, **options):
            with searching():
                program = self._lower(compilation, tuned=True)
            self._build_parts(program)
            made.append(self._loaded(program))
        return made

    def _first(
        self, mask: Mask, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None
    ) -> tuple[Tensor, ...] | None:
        """Checks the inputs of a build's first call, then makes the build; within `ahead`, starts it and returns zeros.

        Raises:
            ArrayError: An input does not fit the graph and the program.
        """
        if is_transformed():
            return None
        with working(self._work(mask)):
            program = self._plan(mask)
            check_inputs(program.forward, self.dtype, graph, stacks, inputs)
            builds = started()
            if builds is None:
                self.variant(mask)
                return None
        builds.start(self, mask)
        shapes = [(graph.size(b.rows), *b.shape) for b in program.forward.outputs[: program.results]]
        return zeros_of(shapes, self.dtype, graph.device, differentiated=True in mask)

    def _build_parts(self, program: LoweredProgram) -> None:
        tf32 = program.forward.has_tf32 and allows_tf32()
        parts = [(part.name, part.source(tf32=tf32)) for part in program.parts]
        self._target.executable_class().build(parts, self._architectures)

    def _made(self, compilation: Compilation) -> Variant:
        """Builds SDFGs as they are."""
        with building():
            forward, backward = lowered(compilation)
            results = len(Program(compilation.forward).outputs) - len(compilation.saved)
            program = LoweredProgram(forward, backward, results, tuple(compilation.wrt))
            self._build_parts(program)
            return self._load(program, lambda: compilation)

    def _load(self, program: LoweredProgram, compile_again: Callable[[], Compilation]) -> Variant:
        load = self._target.executable_class()
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
        program = self._of_text(made.text, self.index)
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

    @property
    def variants(self) -> list[Variant]:
        """Returns the builds so far, oldest first."""
        return list(self._variants.values())

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

    def of_index(self, index: torch.dtype) -> CompiledProgram:
        """Returns the same program for graphs with other indices."""
        others = replace(self.config, **self._memory), self.profile, frozenset(self.sparse)
        return compiled_program(self.program, self.dtype, index, *others, shared=self.shared)

    def measured(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns ``graph`` with the sizes of the last call on it: with sparse features, or with the rows read."""
        if isinstance(graph, ExchangingGraph):
            return graph.read
        reference = self._features.get(graph)
        features = None if reference is None else reference()
        return graph if features is None else features

    def run(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Runs on the arrays that builds take; differentiable as well."""
        if isinstance(graph, ExchangingGraph):
            return self.exchanged(graph).run(inputs)
        division = None if self._limit is None else self._divided(self._limit, graph, inputs)
        if division is None or division.ranges is None:
            return self._run(graph, inputs)
        return self._streams.run(graph, inputs, division)

    def _divided(self, limit: MemoryLimit, graph: HeteroGraph, inputs: list[Tensor]) -> Division | None:
        """Returns how a call stays within the limit; None if it is no step.

        Raises:
            ArrayError: An input does not fit the graph and the program.
            MemoryLimitError: A step takes more, however it is divided.
        """
        if is_transformed():
            return None  # such calls compute other things than steps
        differentiated = torch.is_grad_enabled()
        mask = tuple([differentiated and t.requires_grad for t in inputs])
        division = limit.division(graph, mask)
        if division.ranges is not None:
            check_inputs(self._program_of(mask).forward, self.dtype, graph, None, inputs)
        return division

    @property
    def is_limited(self) -> bool:
        """Tells whether steps stay within a limit of memory."""
        return self._limit is not None

    def division(self, graph: HeteroGraph) -> Division | None:
        """Returns how the calls so far that needed the most memory ran on a graph; None before the first one."""
        whole = [Division(None, self.need(CountedSizes(graph), mask).peak) for mask in self._variants]
        return max([*whole, *self.divisions(graph)], key=lambda division: division.need, default=None)

    def divisions(self, graph: HeteroGraph) -> list[Division]:
        """Returns how calls under a memory limit have run on a graph, one entry for each set of gradients."""
        return [] if self._limit is None else [*self._limit.divisions(graph).values()]

    def of_range(self, part: DestinationRange) -> CompiledProgram:
        """Returns the program of a range of destinations."""
        return self._streams.of_range(part)

    def exchanged(self, graph: ExchangingGraph) -> Exchanged:
        """Returns how the program runs on a graph that is divided over processes."""
        if self not in graph.derived:
            graph.derived[self] = Exchanged(graph, self._cuts)
        return graph.derived[self]

    def _of_text(self, text: str, index: torch.dtype, **options: Any) -> CompiledProgram:
        """Returns another program with the options of this one, but for those that name arrays."""
        config = replace(self.config, plan=None, cache=(), recompute=(), tune="off", **options)
        return compiled_program(ProgramSource(text, ()), self.dtype, index, config, self.profile)

    def _program_of(self, mask: Mask) -> LoweredProgram:
        return self._variants[mask].program if mask in self._variants else self._plan(mask)

    def _run(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() or is_transformed():
            mask = tuple([t.requires_grad for t in inputs])
            if True in mask or is_transformed():
                if mask not in self._variants and (zeros := self._first(mask, graph, inputs)) is not None:
                    return zeros
                return run(Invocation(self, graph, mask), inputs)
        if self._inference is None and (zeros := self._first((False,) * len(inputs), graph, inputs)) is not None:
            return zeros
        return self._infer(graph, inputs, None)

    def _infer(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None) -> tuple[Tensor, ...]:
        executable, contest = self.inference(), self._contests.get((False,) * len(self._taken))
        if contest is None:
            return tuple(executable.run(executable.prepare(graph, stacks), inputs)[0])
        variant, runner = contest.take(graph)
        prepared, start = variant.forward.prepare(graph, stacks), perf_counter()
        results = tuple(variant.forward.run(prepared, inputs)[0])
        contest.note(runner, perf_counter() - start, graph)
        return results

    def stacked(
        self, graph: HeteroGraph, tensors: list[Tensor], stacks: Stacks | None, gate: Gate | None = None
    ) -> tuple[Tensor, ...]:
        """Runs on the inputs that ``stacks`` does not make, in order, followed by its parts; differentiable as well.

        Args:
            gate: Is called with the arrays that torch makes of differentiated parts.
        """
        if stacks is None:
            return self(graph, tensors)
        # Kernels of the CPU read parts in place; on devices, and for autograd, torch joins them first.
        in_place = self._target.executable_class().takes_parts and not self.sparse
        differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if not in_place or differentiated or is_transformed() or self._limit is not None:
            parts = tensors[len(tensors) - stacks.count :]
            try:
                made = stacks.arrays(parts, gate)
            except RuntimeError:
                if not self.sparse:
                    self.inference().prepare(graph, stacks).inputs.check(tensors)  # names the part
                raise
            others = iter(tensors)
            return self(graph, [made[name] if name in made else next(others) for name in self.inputs])
        if self._inference is None:
            zeros = self._first((False,) * len(self._taken), graph, tensors, stacks)
            if zeros is not None:
                return zeros
        return self._infer(graph, tensors, stacks)


@lru_cache(maxsize=1024)
def compiled_program(
    program: ProgramSource,
    dtype: torch.dtype,
    index: torch.dtype,
    config: Config,
    profile: Profile,
    sparse: frozenset[str] = frozenset(),
    *,
    shared: bool = False,
) -> CompiledProgram:
    """Returns the compiled form of a program, with choices for graphs like ``profile``; equal programs share it.

    Args:
        sparse: Arrays that come as sparse tensors.
        shared: Whether ``config.plan`` also belongs to other programs, which may ask questions that this one does not.
    """
    with building():
        return CompiledProgram(program, dtype, index, config, profile, sparse, shared=shared)
