"""Keeps the code of compiled programs on disk, so that a later process runs neither passes nor code generator."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dace

from dacergnn.native.cache import lookup_plan, store_plan
from dacergnn.runtime.lower import Buffer, Lowered

# The files of `dacergnn.tuning` that search for a plan; the others collect records and train the model.
_TUNING = (
    "features",
    "footprint",
    "graph_facts",
    "measure",
    "model_file",
    "operations",
    "predictor",
    "samples",
    "schedules",
    "search",
    "space",
    "terms",
    "tuned",
)
# Files and folders of the package that decide what a program is compiled to.
_SOURCES = (
    "__init__.py",
    "config.py",
    "cost.py",
    "graph",
    "library_nodes",
    "modules/lowered_program.py",
    "modules/sparse.py",
    "native/precompiled.py",
    "plan.py",
    "program",
    "runtime/lower.py",
    "runtime/plan_cache.py",
    "runtime/statistics.py",
    "sdfg_passes",
    "target.py",
    *(f"tuning/{name}.py" for name in _TUNING),
    "tuning/model.npz",
)


def digest_sources(package: Path) -> str:
    """Returns a hash of the names and contents of the sources that take part in compiling."""
    digest = hashlib.sha256()
    for path in (package / source for source in _SOURCES):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


# Made when the sources are imported, not when first needed, since they may be edited while this process runs.
_VERSIONS = f"{digest_sources(Path(__file__).parent.parent)}\n{dace.__version__}"


@dataclass(frozen=True)
class LoweredProgram:
    """Holds the code of a program after all passes.

    The forward returns ``results`` outputs of the program, then the arrays saved for the backward; the backward
    returns the gradients of the inputs ``wrt``. ``again`` are the inputs from which these are computed if the
    gradients are differentiated, too. ``answers`` are the answers of the plan that a search has found, ``asked`` the
    questions that the user's plan has answered.
    """

    forward: Lowered
    backward: Lowered | None
    results: int
    wrt: tuple[str, ...]
    again: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()

    def sources(self, taken: Sequence[str]) -> tuple[tuple[str, int], ...]:
        """Returns where inputs of the backward come from that the forward has not saved: kinds, and positions there.

        An "input" is one of the arrays ``taken`` by the forward, an "output" is a result of it, and a "gradient" is the
        gradient of a result.
        """
        if self.backward is None:
            return ()
        outputs = [b.name for b in self.forward.outputs]

        def source(name: str) -> tuple[str, int]:
            if name in taken:
                return "input", taken.index(name)
            kind = "output" if name in outputs else "gradient"
            return kind, outputs.index(name if kind == "output" else name.removeprefix("grad_"))

        saved = outputs[self.results :]
        return tuple(source(name) for name in self.backward.inputs if name not in saved)

    @property
    def parts(self) -> list[Lowered]:
        """Returns the programs to build."""
        return [self.forward] if self.backward is None else [self.forward, self.backward]


def compiler_version() -> str:
    """Returns a hash of this compiler's sources and the version of DaCe."""
    return hashlib.sha256(_VERSIONS.encode()).hexdigest()[:20]


def plan_key(*circumstances: object) -> str:
    """Returns the key of a compiled program: of ``circumstances``, this compiler and the settings of DaCe."""
    text = "\n".join([_VERSIONS, repr(dace.Config.get("compiler")), *map(repr, circumstances)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def load(key: str, name: str) -> LoweredProgram | None:
    """Returns the program kept under ``key``; None if there is none, or it is damaged."""
    return lookup_plan(key, name, _decode)


def keep(key: str, name: str, program: LoweredProgram) -> None:
    """Keeps a program for later processes, if the cache can be written."""
    store_plan(key, name, asdict(program))


def _decode(record: dict[str, Any]) -> LoweredProgram:
    backward = record["backward"]
    return LoweredProgram(
        forward=_lowered(record["forward"]),
        backward=None if backward is None else _lowered(backward),
        results=record["results"],
        wrt=tuple(record["wrt"]),
        again=tuple(record["again"]),
        answers=_tuples(record["answers"]),
        asked=tuple(record["asked"]),
    )


def _lowered(record: dict[str, Any]) -> Lowered:
    fields = _tuples(record)
    for name in ("outputs", "intermediates"):
        fields[name] = tuple(Buffer(**buffer) for buffer in fields[name])
    return Lowered(**fields)


def _tuples(value: Any) -> Any:
    """Returns the value with tuples, which JSON has turned into lists."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
