"""Offers the passes as DaCe transformations: to VS Code's SDFG extension, DaCe's command line, `apply_transformations`.

It is enough to import this module: DaCe finds transformations as subclasses. A pass rewrites a whole program, so
its transformation matches the one state of an inter-operator SDFG, and only where the pass would change something.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import new_class
from typing import Any, cast

import dace
from dace.properties import DictProperty, Property, make_properties
from dace.sdfg.utils import node_path_graph
from dace.transformation import MultiStateTransformation, PatternNode

from dacergnn.config import LEVELS, PASSES, Config
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.node import Typeclass, copied
from dacergnn.program import verify
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.target import TARGETS

PRICED = ("linear_operator_reordering", "compact_materialization", "aggregation_order", "traversal_fusion")
"""Passes that choose by the level or the graph; the others always do all they can."""


def _passes(level: str = "O2", index: Typeclass = dace.int32) -> dict[str, Pass]:
    """Returns all passes over one program by name, in pipeline order."""
    pipeline = Pipeline.of(Config(level, PASSES), index=index)
    return {step.name: step for step in (*pipeline.forward, *pipeline.both)}


def _sizes() -> DictProperty:
    """Returns the property by which passes choose; spaces that it leaves out have the rows of a typical graph."""
    typical = dict(TYPICAL.sizes)
    return DictProperty(
        key_type=str, value_type=int, default=typical, desc="Rows of row spaces of the graph to choose for"
    )


def _code() -> Property[str]:
    return Property(dtype=str, default="cpu", choices=list(TARGETS), desc="Expansion of the library nodes")


def _rows(sizes: object) -> tuple[tuple[str, int], ...]:
    return tuple({**TYPICAL.sizes, **cast("Mapping[str, int]", sizes)}.items())


@make_properties
class ProgramTransformation(MultiStateTransformation, ABC):
    """Offers a pass over an inter-operator SDFG, as a match on its state."""

    __explicit_cf_compatible__ = True  # it matches no loops or branches, and DaCe need not warn about them
    program = PatternNode(dace.SDFGState)

    @property
    @abstractmethod
    def step(self) -> str:
        """Returns the name of the pass."""

    @property
    def passes(self) -> dict[str, Pass]:
        """Returns the passes by name, with the options that the properties set."""
        return _passes()

    @property
    def context(self) -> Context:
        """Returns the context of the pass, as the properties set it."""
        return Context()

    def rewrite(self, sdfg: dace.SDFG) -> int:
        """Runs the pass on ``sdfg``, in place; returns how often it fired."""
        return self.passes[self.step].run(sdfg, self.context)

    @classmethod
    def expressions(cls) -> list[Any]:
        return [node_path_graph(cls.program)]

    def can_be_applied(self, graph: object, expr_index: int, sdfg: dace.SDFG, permissive: bool = False) -> bool:
        """Returns whether the pass fires on a copy, which takes milliseconds; no pass needs a check of its own."""
        nodes = [node for state in sdfg.states() for node in state.nodes()]
        operators = [node for node in nodes if isinstance(node, GraphOperator)]
        if not operators or any(operator.implementation for operator in operators):
            return False  # not a program of ours, or one whose access schemes are fixed already
        try:
            verify(sdfg)
            return self.rewrite(copied(sdfg)) > 0
        except DacergnnError:  # not in program form, or no longer in the form that this pass takes
            return False

    def apply(self, graph: object, sdfg: dace.SDFG) -> int:
        fired = self.rewrite(sdfg)
        verify(sdfg)
        return fired

    def annotates_memlets(self) -> bool:
        return True


@make_properties
class PricedPass(ProgramTransformation):
    """Offers a pass that chooses by the level and by the graph."""

    level = Property(dtype=str, default="O2", choices=list(LEVELS), desc='"hector": as the paper; "O2": by cost')
    sizes = _sizes()
    single_typed = Property(
        dtype=bool, default=False, desc="Whether each relation joins one source type with one destination type"
    )

    @property
    def passes(self) -> dict[str, Pass]:
        return _passes(str(self.level))

    @property
    def context(self) -> Context:
        return Context(Profile(_rows(self.sizes), bool(self.single_typed)))


@make_properties
class SchedulingPass(ProgramTransformation):
    """Offers a pass that chooses schedules by the graph."""

    sizes = _sizes()
    longest = DictProperty(
        key_type=str, value_type=int, default={}, desc="Edges of the longest group by its path (Profile.longest)"
    )
    code = _code()

    @property
    def context(self) -> Context:
        longest = cast("Mapping[str, int]", self.longest)
        profile = Profile(_rows(self.sizes), hubs=tuple(longest.items()))
        return Context(profile, implementation=str(self.code))


@make_properties
class EncodingPass(ProgramTransformation):
    """Offers a pass that fixes the encodings."""

    index = Property(dtype=str, default="int32", choices=["int32", "int64"], desc="Element type of encodings")
    code = _code()

    @property
    def passes(self) -> dict[str, Pass]:
        return _passes(index=getattr(dace, str(self.index)))

    @property
    def context(self) -> Context:
        return Context(implementation=str(self.code))


_KINDS: dict[str, type[ProgramTransformation]] = {
    **dict.fromkeys(PRICED, PricedPass),
    "select_schedule": SchedulingPass,
    "select_adjacency": EncodingPass,
}
"""Name of a pass -> class with its properties, if it has any."""


def _transformation(step: Pass) -> type[ProgramTransformation]:
    """Returns the class of a pass, with its name; a viewer shows the documentation of the pass's module."""
    kind, base = type(step), _KINDS.get(step.name, ProgramTransformation)
    members: dict[str, Any] = {
        "__doc__": sys.modules[kind.__module__].__doc__, "__module__": __name__, "step": step.name
    }  # fmt: skip
    return make_properties(new_class(kind.__name__, (base,), exec_body=lambda namespace: namespace.update(members)))


TRANSFORMATIONS = {name: _transformation(step) for name, step in _passes().items()}
"""Name of a pass -> its transformation, in pipeline order. Differentiation is not among them: it makes two SDFGs."""
globals().update({kind.__name__: kind for kind in TRANSFORMATIONS.values()})  # DaCe looks here to load histories
