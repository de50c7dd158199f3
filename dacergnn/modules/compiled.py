"""Compiles a program for one element type and index type: a build for each set of inputs that need gradients."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path

import dace
import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.modules import sdfg_files
from dacergnn.modules.ahead import started, zeros_of
from dacergnn.modules.autograd import Gradients, Invocation, Mask, run
from dacergnn.modules.building import Turns, building
from dacergnn.modules.elements import ELEMENTS, check_elements
from dacergnn.modules.sparse import SparseArrays
from dacergnn.modules.variant import Variant
from dacergnn.native.build import build_all, check_compiler
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.program.flatten import FlatProgram, flatten
from dacergnn.program.names import sdfg_name
from dacergnn.program.parser import parse_flat
from dacergnn.progress import working
from dacergnn.runtime import plan_cache
from dacergnn.runtime.cuda_device import allows_tf32, architectures
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.inputs import check_inputs
from dacergnn.runtime.lower import Lowered, lower
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.runtime.stacks import Gate, Stacks
from dacergnn.runtime.transformed import is_transformed
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.sdfg_passes.gradient_program import gradient_program
from dacergnn.target import Target, find

_INDICES: dict[torch.dtype, Typeclass] = {torch.int32: dace.int32, torch.int64: dace.int64}
Answers = tuple[tuple[str, str], ...]


def _lowered(compilation: Compilation) -> tuple[Lowered, Lowered | None]:
    """Returns the forward and, if there is one, the backward as C++."""
    backward = None if compilation.backward is None else lower(compilation.backward, compilation.saved)
    return lower(compilation.forward, compilation.saved), backward


class CompiledProgram:
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
        check_elements("the layer", dtype, config.implementation)
        self.program = program
        flat = self._flat()
        self.dtype = dtype
        self.index = index
        self.config = config if config.plan is None else replace(config, plan=config.plan.of_model())
        self.shared = shared
        self.profile = profile
        """Describes the graphs that choices are made for; with sparse features, the graph of the first call."""
        self.name: str = flat.name
        self.title = flat.name  # of what runs the program, for users
        self.inputs = [sdfg_name(name) for name in flat.arrays]
        """The arrays that calls take."""
        self.sparse = [name for name in self.inputs if name in sparse]
        arrays = [(name, ast.dump(node)) for name, node in flat.arrays.items()]
        # All that the parser reads: helper functions are inlined, constants bound.
        self._text = (flat.name, arrays, [ast.dump(n) for n in flat.body], self.sparse)
        self._architectures = architectures(config.cuda_arch) if find(config.implementation).has_architectures else ()
        self._variants: dict[Mask, Variant] = {}
        self._planned: dict[Mask, tuple[list[str], LoweredProgram]] = {}
        self._turns = Turns()
        self._gradients: dict[Mask, Gradients | None] = {}
        self._inference: Variant | None = None
        self._features: Callable[[], HeteroGraph | None] | None = None

    def _flat(self) -> FlatProgram:
        return flatten(self.program.source, dict(self.program.bindings), self.program.then)

    @cached_property
    def sdfg(self) -> dace.SDFG:
        """Returns the program as it was parsed, and rewritten for sparse features, before all passes."""
        return self._parsed if self._arrays is None else self._arrays.program.sdfg

    @property
    def _parsed(self) -> dace.SDFG:
        with building():
            return parse_flat(self._flat(), ELEMENTS[self.dtype])

    @cached_property
    def _arrays(self) -> SparseArrays | None:
        """Returns the maker of the arrays that builds take; None without sparse features."""
        return SparseArrays.of(self._parsed, self.inputs, self.sparse) if self.sparse else None

    @cached_property
    def _taken(self) -> list[str]:
        """Returns the arrays that builds take."""
        return self.inputs if self._arrays is None else [*self._arrays.program.arrays]

    @cached_property
    def outputs(self) -> list[str]:
        """Returns the names of the results."""
        return Program(self.sdfg).outputs

    @property
    def result_rows(self) -> list[tuple[str, tuple[int, ...]]]:
        """Returns row space and row shape of each result."""
        view = Program(self.sdfg)
        return [(view.space(name), view.shape(name)) for name in view.outputs]

    def inference_code(self) -> Lowered:
        """Returns the code for calls in which no input needs gradients; it need not be built."""
        return self._plan((False,) * len(self._taken))[1].forward

    @property
    def answers(self) -> Answers:
        """Returns the answers of the plan for calls in which no input needs gradients."""
        program = self._plan((False,) * len(self._taken))[1]
        with building():
            return self._compiled([], program.answers).plan.answers

    @property
    def _target(self) -> Target:
        return find(self.config.implementation)

    def variant(self, mask: Mask) -> Variant:
        """Returns the build for calls in which the inputs in ``mask`` need gradients."""
        variant = self._variants.get(mask)
        if variant is None:
            with self._turns.of(mask):
                variant = self._variants.get(mask)
                if variant is None:
                    with working(self._work(mask)):
                        variant = self._variants[mask] = self._build(mask)
        return variant

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
        wrt, program = self._built(mask)
        self._planned.pop(mask)
        if not self._target.has_architectures and self.config.cuda_arch is not None:
            config = replace(self.config, implementation="cuda")
            sparse = frozenset(self.sparse)
            device = compiled_program(
                self.program, self.dtype, self.index, config, self.profile, sparse, shared=self.shared
            )
            device._built(mask)
        with building():
            return self._load(program, cache(partial(self._compiled, wrt, program.answers, keep=True)))

    def _built(self, mask: Mask) -> tuple[list[str], LoweredProgram]:
        """Returns the inputs that need gradients, and the program, whose library is in the cache of builds."""
        wrt, program = self._plan(mask)
        self._build_parts(program)
        return wrt, program

    def _plan(self, mask: Mask) -> tuple[list[str], LoweredProgram]:
        """Returns the inputs that need gradients, and the program after all passes, which need not be built."""
        check_compiler(self._architectures)  # before the work that only a build needs
        with building():
            if mask in self._planned:
                return self._planned[mask]
            wrt = [n for n, needed in zip(self._taken, mask, strict=True) if needed]
            choices = self.config, self._target.version, self.profile, mask, self.shared
            key = plan_cache.plan_key(*self._text, self.dtype, self.index, *choices)
            program = plan_cache.load(key, self.name)
            if program is None:
                program = self._lower(self._tuned(wrt) if self._tunes else self._compiled(wrt))
                plan_cache.keep(key, self.name, program)
            self._planned[mask] = wrt, program
            return wrt, program

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
            program = self._plan(mask)[1]
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
        build_all([(part.name, part.source(tf32=tf32)) for part in program.parts], self._architectures)

    def _made(self, compilation: Compilation) -> Variant:
        """Builds SDFGs as they are."""
        with building():
            forward, backward = _lowered(compilation)
            results = len(Program(compilation.forward).outputs) - len(compilation.saved)
            program = LoweredProgram(forward, backward, results, tuple(compilation.wrt))
            self._build_parts(program)
            return self._load(program, lambda: compilation)

    def _compiled(self, wrt: list[str], answers: Answers = (), *, keep: bool = False) -> Compilation:
        tuned, shared = Plan(answers), self.shared
        return compile_program(
            self.sdfg, wrt, self.config, self.index_type, self.profile, tuned=tuned, shared=shared, keep=keep
        )

    @property
    def index_type(self) -> Typeclass:
        """Returns the element type of encodings."""
        return _INDICES[self.index]

    @cached_property
    def key(self) -> str:
        """Returns a key of the program and the calls that it serves, whatever the passes make of it."""
        calls = self.dtype, self.index, self.config.implementation, self.profile.single_typed
        return sha256(repr((*self._text, *calls)).encode()).hexdigest()[:20]

    @property
    def _tunes(self) -> bool:
        return self.config.tune != "off" and self._target.tunes

    def _tuned(self, wrt: list[str]) -> Compilation:
        from dacergnn.tuning.tuned import tuned  # imported only where programs are tuned

        graph = self.profile.origin()
        if graph is None:
            return self._compiled(wrt)
        return tuned(self.sdfg, wrt, self.config, self.index_type, graph, shared=self.shared)

    def _lower(self, compilation: Compilation) -> LoweredProgram:
        forward, backward = _lowered(compilation)
        answers = compilation.plan.answers if self._tunes else ()
        gradient = None if backward is None else gradient_program(self.sdfg, compilation.wrt)
        again = () if gradient is None else gradient.inputs
        user = self.config.plan or Plan()
        asked = tuple(question for question in user.by_question if question in compilation.asked)
        wrt = tuple(compilation.wrt)
        return LoweredProgram(forward, backward, len(self.outputs), wrt, again, answers, asked)

    def _load(self, program: LoweredProgram, compile_again: Callable[[], Compilation]) -> Variant:
        load = self._target.executable_class()
        asked = frozenset(program.asked)
        forward = load(program.forward, program.results, self._architectures)
        if program.backward is None:
            return Variant(forward, None, program.results, (), (), frozenset(), frozenset(), compile_again, asked)
        backward = load(program.backward, None, self._architectures)
        forward.encodings = tuple(dict.fromkeys((*forward.lowered.encodings, *backward.lowered.encodings)))
        slots = tuple(self._taken.index(n) for n in program.wrt)
        sources = program.sources(self._taken)
        kept = frozenset([i for kind, i in sources if kind == "input"] + [*map(self._taken.index, program.again)])
        read = frozenset([i for kind, i in sources if kind == "output"])
        return Variant(forward, backward, program.results, sources, slots, kept, read, compile_again, asked)

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
        config = replace(self.config, plan=None, cache=(), recompute=(), tune="off")
        program = compiled_program(ProgramSource(made.text, ()), self.dtype, self.index, config, self.profile)
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
            self._features = weakref.ref(features)
            return self.run(features, arrays)
        return self.run(graph, inputs)

    def of_index(self, index: torch.dtype) -> CompiledProgram:
        """Returns the same program for graphs with other indices."""
        others = self.config, self.profile, frozenset(self.sparse)
        return compiled_program(self.program, self.dtype, index, *others, shared=self.shared)

    def measured(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns the graph with the sizes of the last call, on ``graph``: the one with its sparse features, if any."""
        features = None if self._features is None else self._features()
        return graph if features is None else features

    def run(self, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Runs on the arrays that builds take; differentiable as well."""
        if torch.is_grad_enabled() or is_transformed():
            mask = tuple([t.requires_grad for t in inputs])
            if True in mask or is_transformed():
                if mask not in self._variants and (zeros := self._first(mask, graph, inputs)) is not None:
                    return zeros
                return run(Invocation(self, graph, mask), inputs)
        if self._inference is None and (zeros := self._first((False,) * len(inputs), graph, inputs)) is not None:
            return zeros
        executable = self.inference()
        return tuple(executable.run(executable.prepare(graph), inputs)[0])

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
        if not in_place or differentiated or is_transformed():
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
        executable = self.inference()
        return tuple(executable.run(executable.prepare(graph, stacks), tensors)[0])


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
