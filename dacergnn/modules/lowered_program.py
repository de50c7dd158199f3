"""Holds what the passes make of a program for one element type and index type."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from math import prod

import dace
import torch

from dacergnn.config import Config
from dacergnn.frontends import ProgramSource
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.modules.building import building
from dacergnn.modules.elements import ELEMENTS, check_elements
from dacergnn.modules.sparse import SparseArrays
from dacergnn.modules.variant import Mask
from dacergnn.native.build import check_compiler
from dacergnn.native.processor import features as processor_features
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.program.flatten import FlatProgram, flatten
from dacergnn.program.listing import Listing
from dacergnn.program.names import sdfg_name
from dacergnn.program.parser import parse_flat
from dacergnn.runtime import plan_cache
from dacergnn.runtime.cuda_device import architectures
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import Lowered, lower
from dacergnn.runtime.needs import Need
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.sdfg_passes.differentiate import origins
from dacergnn.sdfg_passes.gradient_program import gradient_program
from dacergnn.target import Target, find
from dacergnn.tuning.model_file import model_digest

_INDICES: dict[torch.dtype, Typeclass] = {torch.int32: dace.int32, torch.int64: dace.int64}
Answers = tuple[tuple[str, str], ...]


def lowered(compilation: Compilation) -> tuple[Lowered, Lowered | None]:
    """Returns the forward and, if there is one, the backward as C++."""
    backward = None if compilation.backward is None else lower(compilation.backward, compilation.saved)
    return lower(compilation.forward, compilation.saved), backward


def measured_on() -> tuple[str, int]:
    """Returns what measured plans depend on: the processor, and the number of threads of calls."""
    return processor_features(), torch.get_num_threads()


class PlannedProgram:
    """Holds a program, and what the passes make of it for each set of inputs that need gradients.

    Args:
        program: Its text.
        dtype: The type of its elements.
        index: The type of the graph's indices.
        config: Options of the passes.
        profile: Describes the graphs that choices are made for.
        sparse: Arrays that come as sparse tensors.
        shared: Whether ``config.plan`` also belongs to other programs, which may ask questions that this one does not.
    """

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
        self._planned: dict[Mask, LoweredProgram] = {}
        self._raced: set[Mask] = set()  # whose plan has won a race before

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
    def no_gradients(self) -> Mask:
        """Returns the mask of calls in which no input needs gradients."""
        return (False,) * len(self._taken)

    @cached_property
    def outputs(self) -> list[str]:
        """Returns the names of the results."""
        return Program(self.sdfg).outputs

    @cached_property
    def leads_to(self) -> list[list[int]]:
        """Returns the positions of the results that depend on each array that builds take."""
        found = origins(Listing.of(self.sdfg))
        return [[i for i, result in enumerate(self.outputs) if name in found[result]] for name in self._taken]

    @property
    def result_rows(self) -> list[tuple[str, tuple[int, ...]]]:
        """Returns row space and row shape of each result."""
        view = Program(self.sdfg)
        return [(view.space(name), view.shape(name)) for name in view.outputs]

    def need(self, sizes: Mapping[str, int], mask: Mask) -> Need:
        """Returns the memory of a step in which the inputs in ``mask`` need gradients; builds nothing.

        Args:
            sizes: Number of rows by row space.
        """
        program, item, index = self.code(mask), self.dtype.itemsize, self.index.itemsize
        return Need.of(program.forward, program.backward, program.results, sizes, item, index)

    def space(self, name: str) -> str:
        """Returns the row space of an input or a result."""
        return Program(self.sdfg).space(name)

    def width(self, name: str) -> int:
        """Returns the elements of a row of an input or a result."""
        return prod(Program(self.sdfg).shape(name))

    def returned(self, sizes: Mapping[str, int], mask: Mask) -> tuple[int, dict[str, int]]:
        """Returns the bytes of the results, and of the gradients of the inputs in ``mask`` by name.

        Args:
            sizes: Number of rows by row space.
        """

        def size(name: str) -> int:
            return sizes[self.space(name)] * self.width(name) * self.dtype.itemsize

        wanted = (name for name, needed in zip(self.inputs, mask, strict=True) if needed)
        return sum(map(size, self.outputs)), {name: size(name) for name in wanted}

    def inference_code(self) -> Lowered:
        """Returns the code for calls in which no input needs gradients; it need not be built."""
        return self.code(self.no_gradients).forward

    @property
    def answers(self) -> Answers:
        """Returns the answers of the plan for calls in which no input needs gradients."""
        program = self.code(self.no_gradients)
        with building():
            return self._compiled([], program.answers).plan.answers

    @property
    def executable_class(self) -> type[Executable]:
        """Returns the class of its loaded builds."""
        return self._target.executable_class()

    @property
    def _target(self) -> Target:
        return find(self.config.implementation)

    def code(self, mask: Mask) -> LoweredProgram:
        """Returns the program after all passes; it need not be built."""
        check_compiler(self._architectures)  # before the work that only a build needs
        with building():
            if mask in self._planned:
                return self._planned[mask]
            program = plan_cache.load(self._key_of_winner(mask), self.name) if self._races else None
            if program is not None:
                self._raced.add(mask)
            else:
                program = self._plan_by_cost(mask)
            self._planned[mask] = program
            return program

    def _plan_by_cost(self, mask: Mask) -> LoweredProgram:
        """Returns the program with the plan that is chosen before calls; it is kept in the cache."""
        measured = measured_on() if self.config.tune == "measure" else ()
        model = model_digest(self.config.model) if self._tunes else ""
        key = self._plan_key(mask, *measured, model)
        program = plan_cache.load(key, self.name)
        if program is None:
            wrt = [n for n, needed in zip(self._taken, mask, strict=True) if needed]
            program = self._lower(self._tuned(wrt) if self._tunes else self._compiled(wrt))
            plan_cache.keep(key, self.name, program)
        return program

    def _key_of_winner(self, mask: Mask) -> str:
        """Returns the key under which the plan is kept that has won a race of this program on this machine."""
        return self._plan_key(mask, "winner", *measured_on())

    def _plan_key(self, mask: Mask, *more: object) -> str:
        choices = self.config, self._target.version, self.profile, mask, self.shared
        return plan_cache.plan_key(*self._text, self.dtype, self.index, *choices, *more)

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
        return self.config.tune in ("model", "measure") and self._target.tunes

    @property
    def _races(self) -> bool:
        frozen = self.config.deterministic or torch.are_deterministic_algorithms_enabled()
        return self.config.tune == "fast" and self._target.tunes and not frozen and not self.sparse

    def may_race(self, mask: Mask) -> bool:
        """Tells whether other builds may race against that of ``mask``; no earlier race has decided which is best."""
        return self._races and mask not in self._raced

    def _tuned(self, wrt: list[str]) -> Compilation:
        from dacergnn.tuning.tuned import tuned  # imported only where programs are tuned

        graph = self.profile.origin()
        if graph is None:
            return self._compiled(wrt)
        return tuned(self.sdfg, wrt, self.config, self.index_type, graph, shared=self.shared)

    def _lower(self, compilation: Compilation, *, tuned: bool | None = None) -> LoweredProgram:
        forward, backward = lowered(compilation)
        answers = compilation.plan.answers if (self._tunes if tuned is None else tuned) else ()
        gradient = None if backward is None else gradient_program(self.sdfg, compilation.wrt)
        again = () if gradient is None else gradient.inputs
        user = self.config.plan or Plan()
        asked = tuple(question for question in user.by_question if question in compilation.asked)
        wrt = tuple(compilation.wrt)
        return LoweredProgram(forward, backward, len(self.outputs), wrt, again, answers, asked)
