"""The programs whose listings are kept, and how a listing tells what every pass did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any

import dace

from dacergnn import Config, parse, print_program
from dacergnn.frontends.programs import hgt, rgat, rgcn
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.program.programs import edge_matrices, gated, gcn, sage

FOLDER = Path(__file__).parent / "golden"
MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "rgcn": (rgcn, {"x": "NS[64]", "W": "R[64, 64]", "norm": "E", "root": "ONE[64, 64]", "bias": "ONE[64]"}),
    "rgat": (
        rgat,
        {
            "x": "NS[64]", "W": "R[64, 64]", "q": "ONE[2, 32]", "k": "ONE[2, 32]", "bias": "ONE[2, 32]",
            "heads": 2, "channels": 32, "slope": 0.2,
        },
    ),
    "hgt": (
        hgt,
        {
            "x": "NS[64]", "W_k": "T[64, 64]", "W_q": "T[64, 64]", "W_v": "T[64, 64]", "W_att": "R[2, 32, 32]",
            "W_msg": "R[2, 32, 32]", "pri": "R[2]", "A": "T[64, 64]", "skip": "T",
            "heads": 2, "dim": 32, "width": 64, "scale": 0.25,
        },
    ),
}  # fmt: skip
PROGRAMS = MODELS | {
    "gcn": (gcn, {"x": "NS[64]", "W": "ONE[64, 16]", "c": "NS", "bias": "ONE[16]"}),
    "sage": (sage, {"x": "NS[64]", "W_l": "ONE[64, 64]", "W_r": "ONE[64, 64]", "bias": "ONE[64]"}),
    "gated": (
        gated,
        {
            "x": "NS[64]", "W": "R[64, 64]", "Q": "T[64, 64]", "a": "R[64]", "gate": "R[64]", "gate_bias": "R",
            "A": "ONE[128, 64]",
        },
    ),
    "edge_matrices": (
        edge_matrices,
        {
            "x": "NS[32]", "z": "E[16]", "N": "ONE[32, 16]", "c": "ONE[32]", "A": "ONE[1024, 32]", "b": "ONE[1024]",
            "bias": "ONE[32]",
        },
    ),
}  # fmt: skip
NOT_LEARNED = ("norm", "c")
DEFAULTS = Config()
ONE_TYPE_EACH = Profile(TYPICAL.rows, single_typed=True)
"""A typical graph whose relations join one type with one."""
PARTS = {"Es": 500_000, "Us": 50_000, "Vs": 350_000, "Ed": 500_000, "Ud": 350_000, "Vd": 50_000}


@dataclass(frozen=True)
class Listed:
    """A program, and what it is compiled for."""

    program: str
    config: Config = DEFAULTS
    profile: Profile = ONE_TYPE_EACH


LISTED = {name: Listed(name) for name in PROGRAMS} | {
    "parts_of_rgcn": Listed("rgcn", profile=Profile(tuple((TYPICAL.sizes | PARTS).items()), single_typed=True)),
    "papers_on_rgat": Listed("rgat", Config(caching="papers")),
    "scales_of_rgcn": Listed("rgcn", Config(passes=("gemm_scale_fusion",))),
    "epilogues_of_rgat": Listed("rgat", Config(passes=("compact_materialization", "gemm_epilogue_fusion"))),
}
"""By name: every program with the defaults; parts of the relations that differ; what papers save; few passes alone."""


def parsed(name: str) -> dace.SDFG:
    source, bindings = PROGRAMS[name]
    return parse(source, **bindings)


def learned(name: str) -> list[str]:
    """The inputs that gradients are asked for."""
    return [n for n, spec in PROGRAMS[name][1].items() if isinstance(spec, str) and n not in NOT_LEARNED]


@cache
def plan(name: str) -> Compilation:
    """The program after every pass."""
    listed = LISTED[name]
    return compile_program(parsed(listed.program), learned(listed.program), listed.config, dace.int32, listed.profile)


def listings(name: str) -> dict[str, str]:
    """File name -> the program of a role as it starts, what every pass that touched it changed, and how it ends."""
    found: dict[str, str] = {}
    for role in ("forward", "backward"):
        steps = [(step, step.sdfgs[role]) for step in plan(name).steps if role in step.sdfgs]
        start = steps[0][0].name
        before = bare(steps[0][1])
        parts = [f"{role} of {name}, after {start}:", "\n".join(before)]
        for step, sdfg in steps[1:]:
            after = bare(sdfg)
            if after != before:
                parts += [f"{step.name}:", "\n".join(changes(before, after))]
            before = after
        parts += ["the result, with its operators:", print_program(steps[-1][1]).rstrip()]
        found[f"{name}_{role}.txt"] = "\n\n".join(parts) + "\n"
    return found


def bare(sdfg: dace.SDFG) -> list[str]:
    """Lines of a program without comments."""
    return [line for line in print_program(sdfg).splitlines() if "#" not in line]


def changes(before: list[str], after: list[str]) -> list[str]:
    """What is gone and what is new; the whole program where that is shorter."""
    lines = [line for line in unified_diff(before, after, lineterm="", n=1) if not line.startswith(("---", "+++"))]
    lines = ["   ..." if line.startswith("@@") else line for line in lines]
    return lines if len(lines) < len(after) else after


def assert_as_kept(found: dict[str, str], folder: Path, name: str, *, update: bool) -> None:
    """Compare texts by the names of their files with those in a folder, or write them there."""
    kept = {path.name: path.read_text() for path in sorted(folder.glob(f"{name}_*.txt"))}
    if update:
        folder.mkdir(exist_ok=True)
        for file in kept.keys() - found.keys():
            (folder / file).unlink()
        for file, text in found.items():
            (folder / file).write_text(text)
        kept = found
    assert sorted(found) == sorted(kept)
    for file, text in found.items():
        assert text == kept[file], file
