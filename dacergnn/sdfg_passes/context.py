"""What passes go by: the graph and the machine that a program is compiled for, and what a plan has decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dacergnn.config import TYPICAL_RATES, Rates
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.sdfg_passes.questions import Questions


@dataclass(frozen=True)
class Context:
    """Describes what a pass knows besides the program and its own options.

    Args:
        profile: The graph to choose for; what passes make is right for every graph.
        rates: What the machine does in a second.
        implementation: The expansion of the library nodes that the program will have.
        questions: Decides on what its plan knows, and takes notes.
    """

    profile: Profile = TYPICAL
    rates: Rates = TYPICAL_RATES["cpu"]
    implementation: str = "cpu"
    questions: Questions = field(default_factory=Questions)

    def of(self, part: str) -> Context:
        """The same for the questions of a part."""
        return replace(self, questions=self.questions.of(part))
