"""Describes the context of passes: the graph, the machine, and the decisions of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dacergnn.config import TYPICAL_RATES, Rates
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.sdfg_passes.questions import Questions


@dataclass(frozen=True)
class Context:
    """Holds the information that a pass has besides the program and its own options.

    Args:
        profile: The graph to choose for; results of passes are right for every graph.
        rates: The speeds of the machine.
        implementation: The expansion of the program's library nodes.
        questions: Answers questions by its plan, and records them.
    """

    profile: Profile = TYPICAL
    rates: Rates = TYPICAL_RATES["cpu"]
    implementation: str = "cpu"
    questions: Questions = field(default_factory=Questions)

    def of(self, part: str) -> Context:
        """Returns the same context for the questions of a part."""
        return replace(self, questions=self.questions.of(part))
