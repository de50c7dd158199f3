"""Names ways to compute something, by which other processes make them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dacergnn.config import Config

COMPILED, REPLAYED = " compiled", " replayed"
"""End the names of variants: layers of libraries through torch.compile, and steps that a CUDA graph replays."""


@dataclass(frozen=True)
class Named:
    """Names one way to compute something: a library's, or ours ("ours") by a config."""

    library: str
    name: str
    config: Config | None = None

    def __str__(self) -> str:
        return f"{self.library} {self.name}"

    @property
    def compiled(self) -> bool:
        """Tells whether a library's layers run through torch.compile."""
        return self.name.endswith(COMPILED)

    @property
    def replayed(self) -> bool:
        """Tells whether steps are replayed from a CUDA graph."""
        return self.name.endswith(REPLAYED)

    @property
    def base(self) -> Named:
        """Returns what a variant is made of."""
        return replace(self, name=self.name.removesuffix(COMPILED).removesuffix(REPLAYED))

    def variant(self, ending: str) -> Named:
        """Returns a variant, by the end of its name."""
        return replace(self, name=self.name + ending)
