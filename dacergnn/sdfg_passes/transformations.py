"""The passes as DaCe transformations, for VS Code's SDFG extension, DaCe's command line and `apply_transformations`.

Importing this module is all it takes: DaCe finds transformations as subclasses. A pass rewrites a whole program, so
its transformation matches the one state of an inter-operator SDFG, and only where the pass would change something.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import new_class
from typing import Any, cast

import dace
from dace.properties import DictProperty, Property, make_properties
from dace.sdfg.utils import node_path_graph
from dace.transformation import MultiStateTransformation, PatternNode

from dacergnn.config import LEVELS
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.node import copied
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes.pipeline import OPTIMIZATIONS, Circumstances
from dacergnn.sdfg_passes.select_adjacency import select_adjacency
from dacergnn.sdfg_passes.select_schedule import select_schedule
from dacergnn.target import TARGETS

PRICED = ("linear_operator_reordering", "compact_materialization", "aggregation_order", "traversal_fusion")
"""The passes that go by the level or the graph; the others always do all they can."""


def _sizes() -> DictProperty:
    """The property by which choices go; spaces that it leaves out have the rows of a typical graph."""
    typical = dict(TYPICAL.sizes)
    return DictProperty(
        key_type=str, value_type=int, default=typical, desc="Rows of row spaces of the graph to choose for"
    )


def _with_typical(sizes: object) -> dict[str, int]:
    return {**TYPICAL.sizes, **cast("Mapping[str, int]", sizes)}


def _documentation(step: str) -> str | None:
    """Returns what a viewer shows: the documentation of a pass's module."""
    return importlib.import_module(f"dacergnn.sdfg_passes.{step}").__doc__


@make_properties
class ProgramTransformation(MultiStateTransformation, ABC):
    """A pass over an inter-operator SDFG, as a match on its state."""

    __explicit_cf_compatible__ = True  # it matches no loops or branches, and DaCe need not warn about them
    program = PatternNode(dace.SDFGState)

    @abstractmethod
    def rewrite(self, sdfg: dace.SDFG) -> int:
        """Run the pass on ``sdfg``, in place; returns how often it fired."""

    @classmethod
    def expressions(cls) -> list[Any]:
        return [node_path_graph(cls.program)]

    def can_be_applied(self, graph: object, expr_index: int, sdfg: dace.SDFG, permissive: bool = False) -> bool:
        """Returns whether the pass fires on a copy: that takes milliseconds, and no pass has to say twice when it
        would."""
        nodes = [node for state in sdfg.states() for node in state.nodes()]
        operators = [node for node in nodes if isinstance(node, GraphOperator)]
        if not operators or any(operator.implementation for operator in operators):
            return False  # not a program of ours, or one whose access schemes are fixed already
        try:
            verify(sdfg)
            return self.rewrite(copied(sdfg)) > 0
        except DacergnnError:  # not in the form, or not in that of this pass any more
            return False

    def apply(self, graph: object, sdfg: dace.SDFG) -> int:
        fired = self.rewrite(sdfg)
        verify(sdfg)
        return fired

    def annotates_memlets(self) -> bool:
        return True


@make_properties
class OptimizingPass(ProgramTransformation):
    """A pass of `OPTIMIZATIONS`."""

    @property
    @abstractmethod
    def step(self) -> str:
        """Its name there."""

    @property
    def circumstances(self) -> Circumstances:
        return Circumstances()

    def rewrite(self, sdfg: dace.SDFG) -> int:
        return OPTIMIZATIONS[self.step](sdfg, self.circumstances)


@make_properties
class PricedPass(OptimizingPass):
    """A pass that chooses by the level and by the graph."""

    level = Property(dtype=str, default="O2", choices=list(LEVELS), desc='"hector": as the paper; "O2": by cost')
    sizes = _sizes()
    single_typed = Property(
        dtype=bool, default=False, desc="Whether each relation joins one source type with one destination type"
    )

    @property
    def circumstances(self) -> Circumstances:
        sizes = _with_typical(self.sizes)
        return Circumstances(str(self.level), Profile(tuple(sizes.items()), bool(self.single_typed)))


@make_properties
class SelectSchedule(ProgramTransformation):
    __doc__ = _documentation("select_schedule")

    sizes = _sizes()
    longest = DictProperty(
        key_type=str, value_type=int, default={}, desc="Edges of the longest group by its path (Profile.longest)"
    )
    code = Property(dtype=str, default="cpu", choices=list(TARGETS), desc="Expansion of the library nodes")

    def rewrite(self, sdfg: dace.SDFG) -> int:
        longest = cast("Mapping[str, int]", self.longest)
        return select_schedule(sdfg, _with_typical(self.sizes), longest, str(self.code))


@make_properties
class SelectAdjacency(ProgramTransformation):
    __doc__ = _documentation("select_adjacency")

    index = Property(dtype=str, default="int32", choices=["int32", "int64"], desc="Element type of encodings")
    code = Property(dtype=str, default="cpu", choices=list(TARGETS), desc="Expansion of the library nodes")

    def rewrite(self, sdfg: dace.SDFG) -> int:
        select_adjacency(sdfg, index=getattr(dace, str(self.index)), implementation=str(self.code))
        return len(Program(sdfg).operators)


def _transformation(step: str) -> type[ProgramTransformation]:
    """The class of a pass, ``NarrowProducts`` for "narrow_products"."""
    base = PricedPass if step in PRICED else OptimizingPass
    name = "".join(word.capitalize() for word in step.split("_"))
    members: dict[str, Any] = {"__doc__": _documentation(step), "__module__": __name__, "step": step}
    return make_properties(new_class(name, (base,), exec_body=lambda namespace: namespace.update(members)))


TRANSFORMATIONS: dict[str, type[ProgramTransformation]] = {
    **{step: _transformation(step) for step in OPTIMIZATIONS},
    "select_schedule": SelectSchedule,
    "select_adjacency": SelectAdjacency,
}
"""Name of a pass -> its transformation, in pipeline order. Differentiation is none: it makes two SDFGs of one."""
globals().update({kind.__name__: kind for kind in TRANSFORMATIONS.values()})  # where the history of an SDFG finds them
