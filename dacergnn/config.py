"""Compile-time choices of a user."""

from __future__ import annotations

from dataclasses import dataclass

from dacergnn.errors import DacergnnError

PASSES = ("gemm_scale_fusion",)
IMPLEMENTATIONS = ("cpu", "pure")


@dataclass(frozen=True)
class Config:
    """How layers are compiled; hashable, so that equal layers share a build.

    Args:
        passes: Names of the optimizing passes to run, of `PASSES`.
        implementation: Expansion of the library nodes: "cpu" (OpenMP C++) or "pure" (plain SDFG maps, the
            slow reference).
    """

    passes: tuple[str, ...] = PASSES
    implementation: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.passes, str):
            raise DacergnnError(f"passes={self.passes!r} is a string; pass a tuple of names, as in ({self.passes!r},).")
        object.__setattr__(self, "passes", tuple(self.passes))
        unknown = [p for p in self.passes if p not in PASSES]
        if unknown:
            raise DacergnnError(
                f"passes={self.passes!r}: there is no pass {unknown[0]!r}; passes: {', '.join(PASSES)}."
            )
        if self.implementation not in IMPLEMENTATIONS:
            raise DacergnnError(f"implementation={self.implementation!r} is not one of {', '.join(IMPLEMENTATIONS)}.")
