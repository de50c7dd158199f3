"""Defines the pipeline: the passes in order, from a front end's program to fixed access schemes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dace

from dacergnn.config import Config
from dacergnn.library_nodes.node import Typeclass
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.cache_or_recompute import CacheOrRecompute
from dacergnn.sdfg_passes.canonical_form import CanonicalForm
from dacergnn.sdfg_passes.compact_materialization import SIDES, CompactMaterialization
from dacergnn.sdfg_passes.gemm_epilogue_fusion import GemmEpilogueFusion
from dacergnn.sdfg_passes.gemm_scale_fusion import GemmScaleFusion
from dacergnn.sdfg_passes.linear_operator_reordering import LinearOperatorReordering
from dacergnn.sdfg_passes.narrow_products import NarrowProducts
from dacergnn.sdfg_passes.propagation_postponing import PropagationPostponing
from dacergnn.sdfg_passes.select_adjacency import SelectAdjacency
from dacergnn.sdfg_passes.select_schedule import SelectSchedule
from dacergnn.sdfg_passes.traversal_fusion import TraversalFusion


@dataclass(frozen=True)
class Pipeline:
    """Holds the passes over a program, in order; its text shows the options of each.

    Args:
        forward: Passes over the original program, until gradients are generated.
        backward: Passes over the program of the gradients.
        caching: Divides the work between the two.
        both: Passes over forward and backward; they fuse operators, which earlier passes do not expect.
    """

    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    caching: CacheOrRecompute
    both: tuple[Pass, ...]

    @classmethod
    def of(cls, config: Config, wrt: Sequence[str] = (), index: Typeclass = dace.int32) -> Pipeline:
        """Returns the passes that a config selects.

        Args:
            wrt: Inputs that gradients will be generated for.
            index: Element type of the graph's encodings.
        """

        def selected(*passes: Pass) -> tuple[Pass, ...]:
            return tuple(p for p in passes if p.name in config.selected)

        hector = config.level == "hector"
        rewrites = (
            LinearOperatorReordering(merge_all=hector),
            PropagationPostponing(),
            CompactMaterialization(("srcpair",) if hector else SIDES),
            GemmScaleFusion(),
        )
        # Hector generates gradients after compaction and reordering (3.5).
        backward: tuple[Pass, ...] = (GemmScaleFusion(),) if hector else rewrites
        orders: tuple[AggregationOrder, ...] = ()
        # Other gradients follow from the order of the forward.
        if not hector and config.aggregation == "auto" and AggregationOrder.name in config.selected:
            orders = (AggregationOrder(),)
        order = AggregationOrder(config.aggregation, tuple(wrt), config.caching)
        return cls(
            forward=selected(CanonicalForm(), *rewrites, order),
            backward=(*selected(*backward), *orders),
            caching=CacheOrRecompute(config.caching, config.cache, config.recompute, orders),
            both=(
                *selected(NarrowProducts(), GemmEpilogueFusion(), TraversalFusion()),
                SelectSchedule(),
                SelectAdjacency(config.adjacency, index),
            ),
        )
