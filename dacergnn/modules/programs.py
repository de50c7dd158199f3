"""Compiles programs, and lists the ways to run them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from dacergnn.config import Config
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.modules.building import building
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.ways.cuts import Cuts
from dacergnn.modules.ways.exchange import Exchange, ExchangingGraph
from dacergnn.modules.ways.memory_limit import InRanges
from dacergnn.modules.ways.race import Race
from dacergnn.modules.ways.way import Way
from dacergnn.modules.ways.whole import Whole


def new_program(
    program: ProgramSource,
    dtype: torch.dtype,
    index: torch.dtype,
    config: Config,
    profile: Profile,
    sparse: frozenset[str] = frozenset(),
    *,
    shared: bool = False,
) -> CompiledProgram:
    """Returns the compiled form of a program, with choices for graphs like ``profile``.

    Args:
        sparse: Arrays that come as sparse tensors.
        shared: Whether ``config.plan`` also belongs to other programs, which may ask questions that this one does not.
    """
    with building():
        made = CompiledProgram(
            program, dtype, index, config, profile, sparse, compile_other=compiled_program, shared=shared
        )
        made.ways = ways_of(made)
        return made


compiled_program = lru_cache(maxsize=1024)(new_program)
"""Does the same as `new_program`; equal programs share their compiled form."""


def ways_of(program: CompiledProgram) -> Sequence[Way]:
    """Returns the ways to run a program that its options ask for, in the order in which a call tries them."""
    cuts, config = Cuts(program), program.step_config
    ranges = [] if config.memory is None else [InRanges(cuts, config.memory)]
    return Exchange(cuts), *ranges, Race(program) if config.tune == "fast" else Whole(program)


def measured(program: CompiledProgram, graph: HeteroGraph) -> HeteroGraph:
    """Returns ``graph`` with the sizes of the last call on it: with sparse features, or with the rows read."""
    return graph.read if isinstance(graph, ExchangingGraph) else program.features(graph)
