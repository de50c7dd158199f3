"""Names ways to compute something, by which other processes make them."""

from __future__ import annotations

from dataclasses import dataclass

from dacergnn.config import Config


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
        return self.name.endswith("compiled")
