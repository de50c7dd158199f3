"""Defines the user's options for how layers are compiled and called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from reprlib import repr as short
from typing import Any, Literal

from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan
from dacergnn.target import TARGETS, find

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
source side, as in the paper (C+R), before gradients are generated; "O2" does everything, chosen by cost."""
OLDEST_ARCHITECTURE = 80
"""Oldest compute capability, without the dot, of devices that CUDA kernels run on."""
STRATEGIES = ("cache_all", "recompute_all", "papers", "auto", "budget:BYTES")
"""Strategies for arrays that the backward reads. The first saves all of them, the second none. "papers" saves results
of reductions and products, and recomputes what takes constant work per element. The others minimize time by the
cost model within half of the free memory, or within BYTES: a number or a size, such as 500MB or 1.5GiB."""
_UNITS = {
    "B": 1,
    **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)},
    **{f"{p}IB": 1024**i for i, p in enumerate("KMGT", 1)},
}
"""Bytes of the units of sizes, in capitals."""
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?) ?([a-z]*)", re.IGNORECASE)
AGGREGATIONS = ("auto", "transform_first", "aggregate_first")
"""Orders of a product and a sum over edges, A (X W) or (A X) W; "auto" is the cheapest by cost for each of them."""
ADJACENCIES = ("auto", "csr", "csc", "coo", "ell", "hybrid")
"""Sparse formats that traversals of edges may run on; "auto" is the cheapest by cost. "ell:SLOTS" is ELLPACK with up to
SLOTS slots for each edge."""
ELL_SLOTS = 4.0
"""Most slots for each edge of an ELLPACK matrix, unless users ask for more by a number."""
CheckGraph = Literal["always", "never"]
CHECKS = ("always", "never")
OnUnsupported = Literal["warn", "error", "ignore"]
"""Choices for what no program expresses: it runs as it is, with a warning or silently, or is an error."""


@dataclass(frozen=True)
class Rates:
    """Describes the speeds of a machine, per second; passes choose by their ratios. `dacergnn env` measures them.

    Args:
        flops: Floating-point operations of matrix products.
        streamed: Bytes read or written in order.
        gathered: Bytes read row by row through an index, from a table that the cache holds.
        rows: Rows looked up through an index, of any number of bytes.
    """

    flops: float
    streamed: float
    gathered: float
    rows: float

    def __post_init__(self) -> None:
        values: dict[str, Any] = vars(self)
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
                raise DacergnnError(f"rates: {name}={short(value)}; pass what the machine does in a second.")

    def save(self, path: str | Path) -> None:
        """Writes a file that `load` and ``--rates`` of the command line read."""
        try:
            Path(path).write_text(json.dumps(vars(self)) + "\n")
        except OSError as error:
            raise DacergnnError(f"rates: {path} cannot be written: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> Rates:
        """Returns the rates that a file holds; raises DacergnnError, with the name of the file, if there are none."""
        try:
            return cls(**json.loads(Path(path).read_text()))
        except (OSError, ValueError, TypeError, DacergnnError):
            raise DacergnnError(
                f"rates: {path} holds none; name a file that Rates.save or dacergnn env --save wrote."
            ) from None


TYPICAL_RATES = {"cpu": Rates(1.6e11, 3.0e10, 3.5e10, 1.7e9), "cuda": Rates(4.0e13, 3.0e12, 6.0e12, 1.0e11)}
"""Rates of kernels: "cpu" was measured on two cores of a server; "cuda" is estimated for a large device, from the data
sheet where that has a figure."""

TUNINGS = ("off", "model", "fast", "measure")
"""Ways to find a plan."""


def budget_of(caching: str) -> float | None:
    """Returns the bytes of a strategy "budget:BYTES"; None for others."""
    head, _, size = caching.partition(":")
    return size_of(size) if head == "budget" else None


def size_of(text: str) -> float | None:
    """Returns the bytes of a size such as "500MB", "1.5GiB" or "1e9"; None for other texts."""
    parts = _SIZE.fullmatch(text.strip())
    unit = None if parts is None else _UNITS.get(parts[2].upper() or "B")
    number = None if parts is None else _number(parts[1])
    return None if unit is None or number is None else number * unit


def ell_slots(adjacency: str) -> float | None:
    """Returns the most slots for each edge of the formats "ell" and "ell:SLOTS"; None for others."""
    if adjacency == "ell":
        return ELL_SLOTS
    head, _, figure = adjacency.partition(":")
    slots = _number(figure)
    return slots if head == "ell" and slots is not None and slots >= 1 else None


def _number(text: str) -> float | None:
    """Returns the finite number that a text spells; None for others."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _check_choice(name: str, value: object, known: Sequence[str], others: str = "") -> None:
    """Raises DacergnnError unless a value is one of the known strings."""
    if not isinstance(value, str) or value not in known:
        raise DacergnnError(f"{name}={short(value)} is not one of {', '.join(known)}{others}.")


def _names(name: str, value: object, example: str) -> tuple[str, ...]:
    """Returns the names that an argument holds; raises DacergnnError unless it is an iterable of strings."""
    if isinstance(value, str):
        raise DacergnnError(f"{name}={value!r} is a string; {example.format(value)}.")
    if not isinstance(value, Iterable):
        raise DacergnnError(f"{name}={short(value)} is a {type(value).__name__}; pass a tuple of names.")
    names: tuple[Any, ...] = tuple(value)
    wrong = [entry for entry in names if not isinstance(entry, str)]
    if wrong:
        raise DacergnnError(f"{name}={names!r} holds {short(wrong[0])}; names are strings.")
    return names


@dataclass(frozen=True)
class Config:
    """Describes how layers are compiled; hashable, so that equal layers share a build.

    Args:
        level: "O0", "hector" or "O2" (`LEVELS`).
        passes: Names of the optimizing passes to run, of `PASSES`; None for those of the level.
        implementation: Expansion of the library nodes: "cpu" (OpenMP C++), "cuda", or "pure" (plain SDFG maps, the
            slow reference); None for that of the device on which the arrays are.
        cuda_arch: Compute capabilities to build CUDA programs for, such as (80, 90); None for those of the devices of
            this machine. Builds need no device: calls on the CPU build their programs for these capabilities, too.
        rates: Rates of the machine to choose by; None for typical ones (`TYPICAL_RATES`).
        cuda_graph: Whether calls of each layer are replayed as CUDA graphs: forward, and backward in training. A call
            is recorded when one like it has been made before: with the same graph and parameters (which may be written
            to), and features of the same shapes. Changes no build.
        caching: Which arrays are saved for the backward, and which it computes again: "cache_all", "recompute_all",
            "papers", "auto" or "budget:BYTES", such as "budget:500MB" (`STRATEGIES`). "auto" takes at most half of the
            free memory for a layer, or half of ``memory``.
        memory: The most bytes that a step of a model on the CPU may take beside its inputs, such as "6GB"; "auto" for
            what is free; None for no limit. A layer that would take more runs range by range of its destinations
            (docs/scale.md).
        scratch: A folder for temporary files, in which a step that runs in ranges keeps its results, the encodings of
            the ranges, and gradients that would take half of the memory. Three quarters of ``memory`` are then for all
            else, and a quarter for pages of files, which the system writes to the disk where it needs their memory.
            None for no files.
        cache: Names of arrays to save, whatever ``caching`` says; `explain` shows the names.
        recompute: Names of arrays to compute again.
        aggregation: Order of products and sums over edges, where there is a choice: "transform_first",
            "aggregate_first" or "auto" (`AGGREGATIONS`). The pass ``aggregation_order`` applies it.
        adjacency: Sparse format that traversals of edges run on, where it fits them: "csr", "csc", "coo", "ell",
            "ell:SLOTS", "hybrid" or "auto" (`ADJACENCIES`).
        plan: The user's own answers to questions of the passes (`Plan`), which come before all else; None answers
            none. Plans that tuning finds are no part of a `Config`.
        tune: How programs for the CPU get a plan for what ``plan`` leaves open (`TUNINGS`): "off" goes by cost alone,
            "model" searches for seconds for a plan that a learned performance model is sure to be faster, "measure"
            builds and runs the plans that this model rates best, for minutes, on the graph of the first call. "fast"
            begins as "off" does, builds one or two plans that may be faster by the model in the background, and races
            them in the calls themselves (docs/tuning.md). Values of different plans agree to rounding.
        model: The file of a performance model that ``tune`` takes, as `dacergnn tune calibrate` writes it; None for
            that of this machine, else the one that comes with the package.
        deterministic: Whether "fast" races nothing and stays with the plan of "off", so that values are the same in
            every call and process. `torch.use_deterministic_algorithms` has the same effect.
        check_graph: Whether calls on the CPU compare all edges with the encoded ones, by a checksum ("always",
            "never"; docs/graphs.md). Changes no build.
    """

    level: str = "O2"
    passes: tuple[str, ...] | None = None
    implementation: str | None = None
    cuda_arch: tuple[int, ...] | None = None
    rates: Rates | None = None
    cuda_graph: bool = False
    caching: str = "cache_all"
    memory: str | int | None = None
    scratch: str | None = None
    cache: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    aggregation: str = "auto"
    adjacency: str = "auto"
    plan: Plan | None = None
    tune: str = "off"
    model: str | None = None
    deterministic: bool = False
    check_graph: CheckGraph = "always"

    def __post_init__(self) -> None:
        _check_choice("level", self.level, tuple(LEVELS))
        if self.passes is not None:
            passes = _names("passes", self.passes, "pass a tuple of names, as in ({!r},)")
            object.__setattr__(self, "passes", passes)
            unknown = [p for p in passes if p not in PASSES]
            if unknown:
                raise DacergnnError(f"passes={passes!r}: there is no pass {unknown[0]!r}; passes: {', '.join(PASSES)}.")
        if self.implementation is not None:
            _check_choice("implementation", self.implementation, tuple(TARGETS))
        self._check_kind("rates", Rates, "pass dacergnn.Rates(...)")
        self._check_kind("plan", Plan, "pass a dacergnn.Plan")
        self._check_kind("model", str, "pass the path of a file as text")
        self._check_kind("deterministic", bool, "pass True or False")
        if not isinstance(self.cuda_graph, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DacergnnError(f"cuda_graph={short(self.cuda_graph)}; pass True or False.")
        if not isinstance(self.caching, str) or budget_of(self.caching) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            _check_choice("caching", self.caching, STRATEGIES[:-1], f", {STRATEGIES[-1]}, as in budget:500MB")
        if self.memory is not None:
            self._check_memory(self.memory)
        self._check_kind("scratch", str, "pass the path of a folder as text")
        if self.scratch is not None and self.memory is None:
            raise DacergnnError(f"scratch={self.scratch!r} is for steps within a limit; pass memory=..., too.")
        if self.scratch is not None and not Path(self.scratch).is_dir():
            raise DacergnnError(f"scratch={self.scratch!r} is no folder; make it, or name another one.")
        _check_choice("aggregation", self.aggregation, AGGREGATIONS)
        if not isinstance(self.adjacency, str) or ell_slots(self.adjacency) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            _check_choice("adjacency", self.adjacency, ADJACENCIES, " and ell:SLOTS")
        for name in ("cache", "recompute"):
            names = _names(name, getattr(self, name), "pass a tuple of names of arrays")
            object.__setattr__(self, name, names)
        _check_choice("tune", self.tune, TUNINGS)
        _check_choice("check_graph", self.check_graph, CHECKS)
        both = [name for name in self.cache if name in self.recompute]
        if both:
            raise DacergnnError(f"cache and recompute both name {both[0]!r}; name it in one of them.")
        if self.cuda_arch is not None:
            self._check_architectures(self.cuda_arch)
        if self.cuda_graph and self.implementation not in (None, "cuda"):
            raise DacergnnError(
                f"cuda_graph=True records calls of CUDA programs, but implementation={self.implementation!r}; "
                "leave one of them out."
            )

    @property
    def caching_within_memory(self) -> str:
        """Returns the strategy of caching; with a limit of bytes, "auto" is a budget of half of it."""
        limit = None if self.memory in (None, "auto") else size_of(str(self.memory))
        return f"budget:{limit / 2:.0f}" if self.caching == "auto" and limit is not None else self.caching

    def _check_kind(self, name: str, kind: type, remedy: str) -> None:
        value = getattr(self, name)
        if value is not None and not isinstance(value, kind):
            raise DacergnnError(f"{name}={short(value)} is a {type(value).__name__}; {remedy}.")

    def _check_memory(self, value: object) -> None:
        size = size_of(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
        if value != "auto" and (size is None or size <= 0):
            raise DacergnnError(f'memory={short(value)}; pass a size, as in "6GB", or "auto" for what is free.')

    def _check_architectures(self, value: object) -> None:
        architectures: tuple[Any, ...] = tuple(value) if isinstance(value, Iterable) else ()
        if not architectures or not all(type(a) is int and a >= OLDEST_ARCHITECTURE for a in architectures):
            raise DacergnnError(
                f"cuda_arch={short(value)}: pass compute capabilities without the dot, "
                f"{OLDEST_ARCHITECTURE} or more, as in (80, 90)."
            )
        object.__setattr__(self, "cuda_arch", architectures)

    def on(self, device: str) -> Config:
        """Returns the config that a build for arrays on a type of device ("cpu", "cuda") depends on.

        Raises:
            DacergnnError: No implementation is given, and there is none for such devices.
        """
        target = find(self.implementation, device)
        if self.implementation is not None and not self.cuda_graph and self.check_graph == "always":
            return self
        return replace(self, implementation=target.name, cuda_graph=False, check_graph="always")

    @property
    def machine(self) -> Rates:
        """Returns the rates to choose by."""
        return self.rates or TYPICAL_RATES[find(self.implementation).device]

    @property
    def selected(self) -> tuple[str, ...]:
        """Returns the passes to run, in pipeline order."""
        chosen = LEVELS[self.level] if self.passes is None else self.passes
        return tuple(p for p in PASSES if p in chosen)
