"""Compile-time choices of a user."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dacergnn.errors import DacergnnError

PASSES = (
    "canonical_form",
    "linear_operator_reordering",
    "propagation_postponing",
    "compact_materialization",
    "gemm_scale_fusion",
    "aggregation_order",
    "narrow_products",
    "gemm_epilogue_fusion",
    "traversal_fusion",
)
LEVELS: dict[str, tuple[str, ...]] = {
    "O0": (),
    "hector": ("linear_operator_reordering", "compact_materialization", "gemm_scale_fusion", "traversal_fusion"),
    "O2": PASSES,
}
"""Passes of each optimization level. "hector" reorders wherever that makes a product of weights and compacts on the
source side, as the paper has it (C+R), before gradients are generated; "O2" does everything, chosen by cost."""
IMPLEMENTATIONS = ("cpu", "cuda", "pure")
OLDEST_ARCHITECTURE = 80
"""Compute capability, without the dot, from which on devices have what CUDA kernels use."""
OnUnsupported = Literal["warn", "error", "ignore"]
"""What becomes of what no program expresses: it runs as it is, with a warning or silently, or is an error."""


@dataclass(frozen=True)
class Config:
    """How layers are compiled; hashable, so that equal layers share a build.

    Args:
        level: "O0", "hector" or "O2" (`LEVELS`).
        passes: Names of the optimizing passes to run, of `PASSES`; None for those of the level.
        implementation: Expansion of the library nodes: "cpu" (OpenMP C++), "cuda", or "pure" (plain SDFG maps, the
            slow reference); None for that of the device on which the arrays are.
        cuda_arch: Compute capabilities to build CUDA programs for, such as (80, 90); None for those of the devices of
            this machine. Builds need no device.
    """

    level: str = "O2"
    passes: tuple[str, ...] | None = None
    implementation: str | None = None
    cuda_arch: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise DacergnnError(f"level={self.level!r} is not one of {', '.join(LEVELS)}.")
        if isinstance(self.passes, str):
            raise DacergnnError(f"passes={self.passes!r} is a string; pass a tuple of names, as in ({self.passes!r},).")
        if self.passes is not None:
            object.__setattr__(self, "passes", tuple(self.passes))
            unknown = [p for p in self.passes if p not in PASSES]
            if unknown:
                raise DacergnnError(
                    f"passes={self.passes!r}: there is no pass {unknown[0]!r}; passes: {', '.join(PASSES)}."
                )
        if self.implementation not in (None, *IMPLEMENTATIONS):
            raise DacergnnError(f"implementation={self.implementation!r} is not one of {', '.join(IMPLEMENTATIONS)}.")
        if self.cuda_arch is not None:
            object.__setattr__(self, "cuda_arch", tuple(self.cuda_arch))
            if not self.cuda_arch or not all(type(a) is int and a >= OLDEST_ARCHITECTURE for a in self.cuda_arch):
                raise DacergnnError(
                    f"cuda_arch={self.cuda_arch!r}: pass compute capabilities without the dot, "
                    f"{OLDEST_ARCHITECTURE} or more, as in (80, 90)."
                )

    def on(self, device: str) -> Config:
        """These choices, with the implementation for arrays on a type of device ("cpu", "cuda") where none is given."""
        return self if self.implementation is not None else replace(self, implementation=device)

    @property
    def selected(self) -> tuple[str, ...]:
        """The passes to run, in pipeline order."""
        chosen = LEVELS[self.level] if self.passes is None else self.passes
        return tuple(p for p in PASSES if p in chosen)
