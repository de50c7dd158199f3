"""The programs whose listings are kept, step by step."""

from __future__ import annotations

from pathlib import Path

import dace

from dacergnn import Config, parse, print_program
from dacergnn.frontends.programs import hgt, rgat, rgcn
from dacergnn.sdfg_passes import compile_program

FOLDER = Path(__file__).parent / "golden"
MODELS = {
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
            "x": "NS[64]", "K": "T[64, 64]", "Q": "T[64, 64]", "V": "T[64, 64]", "W_att": "R[2, 32, 32]",
            "W_msg": "R[2, 32, 32]", "pri": "R[2]", "A": "T[64, 64]", "skip": "T",
            "heads": 2, "dim": 32, "width": 64, "scale": 0.25,
        },
    ),
}  # fmt: skip


def listings(model: str) -> dict[str, str]:
    """File name -> text of the program after every step, gradients of everything but the norm."""
    source, bindings = MODELS[model]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str) and n != "norm"]
    plan = compile_program(parse(source, **bindings), wrt, Config(), dace.int32)
    found: dict[str, str] = {}
    for number, step in enumerate(plan.steps):
        for role, sdfg in step.sdfgs.items():
            text = print_program(sdfg)
            if text not in found.values():  # steps that change nothing are left out
                found[f"{model}_{number:02}_{step.name}_{role}.txt"] = text
    return found
