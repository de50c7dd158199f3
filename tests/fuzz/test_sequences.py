"""Random sequences of things done to a layer: after each of them, the compiled one does what the original does.

Layer, options, form of call, graph, passes and steps are drawn. 124 sequences run by default, the same ones each time;
``HYPOTHESIS_PROFILE=explore pytest tests/fuzz`` draws 1000 others for each layer. Layers of this package and programs
have no original that they could be compared with.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from dacergnn import Config
from tests.fuzz.graphs import GraphCase, graph_cases
from tests.fuzz.layers import LAYERS, Layer
from tests.fuzz.steps import STEPS
from tests.fuzz.world import NotComparableError, World

SEQUENCES = 124
LONGEST = 6
LEVELS = ("O0", "O2")
"""Of passes: no or all of them; what is done to a layer does not depend on them, and they take a third of the time."""


@dataclass(frozen=True)
class Sequence:
    """What happens to a layer, from its making on."""

    options: dict[str, Any]
    form: str
    graph: GraphCase
    level: str
    steps: list[tuple[str, int]]


def sequences(layer: Layer) -> st.SearchStrategy[Sequence]:
    """Sequences for a kind of layer; the simplest has default options and one call."""
    options = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in layer.options.items()})
    steps = st.lists(st.tuples(st.sampled_from([*STEPS]), st.integers(0, 23)), max_size=LONGEST)
    return st.builds(Sequence, options, st.sampled_from(layer.forms), graph_cases(), st.sampled_from(LEVELS), steps)


def check(layer: Layer, sequence: Sequence) -> None:
    """Run a sequence; a call follows each step, two of them the first one, so that the second is like one before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            world = World(layer, sequence.options, sequence.form, sequence.graph, Config(level=sequence.level))
        except Exception:  # no such layer
            layer_is_refused_by_its_library(layer, sequence)
            return
        with suppress(NotComparableError):
            for _ in range(2):
                world.both(world.call)
            for name, choice in sequence.steps:
                STEPS[name](world, choice)
                world.both(world.call)


def layer_is_refused_by_its_library(layer: Layer, sequence: Sequence) -> None:
    """The library itself raises, so that there is nothing to compare."""
    with pytest.raises(Exception):  # noqa: B017, PT011
        layer.original(sequence.options)


@pytest.mark.no_cover
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_the_compiled_layer_does_what_the_original_does(layer: Layer) -> None:
    @given(sequences(layer))
    def run(sequence: Sequence) -> None:
        check(layer, sequence)

    chosen = settings(settings(), suppress_health_check=[HealthCheck.too_slow])
    if chosen.derandomize:  # other sequences for each layer, and the same ones each time
        chosen = settings(chosen, max_examples=-(-SEQUENCES // len(LAYERS)))
        run = seed(crc32(layer.name.encode()))(run)
    settings(chosen)(run)()
