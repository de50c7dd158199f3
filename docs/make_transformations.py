"""Makes the parts of transformations.md that DaCe prints or a table holds: names, properties and the menu.

python docs/make_transformations.py [--print]
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest.mock import patch

import dace
from dace.properties import DictProperty
from dace.transformation.optimizer import SDFGOptimizer
from pages import FOLDER, give, replaced

from dacergnn import parse
from dacergnn.modules import RGAT
from dacergnn.sdfg_passes.transformations import TRANSFORMATIONS, ProgramTransformation
from dacergnn.tables import Table

ANSWERS = (
    "LinearOperatorReordering$0(sizes=dict(E=48810, U=24299, V=24299))",
    *("CompactMaterialization$0", "NarrowProducts$0", "TraversalFusion$0", "SelectAdjacency$0"),
    "quit",
)


def properties(kind: type[ProgramTransformation]) -> list[str]:
    """Returns the properties that a transformation has beyond DaCe's own, with the choices of those with few."""
    own = {name: p for name, p in kind.__properties__.items() if name not in ProgramTransformation.__properties__}
    options = {n: [] if isinstance(p, DictProperty) else [str(c) for c in p.choices or ()] for n, p in own.items()}
    return [f"`{name}`" + (f" (`{'`, `'.join(choices)}`)" if choices else "") for name, choices in options.items()]


def table() -> str:
    rows = [(f"`{kind.__name__}`", ", ".join(properties(kind)) or "-") for kind in TRANSFORMATIONS.values()]
    return Table("", ("apply in this order", "properties"), 2, rows=rows).markdown() + "\n"


def menu() -> str:
    """Returns what DaCe's command line prints for RGAT: the first menu, and then each question with its answer."""
    source = RGAT(64, 64, 1).program()
    answers: Iterator[str] = iter(ANSWERS)
    questions: list[str] = []
    printed = io.StringIO()

    def answer(question: str) -> str:
        questions.append(question + next(answers))
        if len(questions) == 1:
            questions[:0] = printed.getvalue().splitlines()
        return questions[-1].removeprefix(question)

    optimizer = SDFGOptimizer(parse(source.source, **dict(source.bindings)))
    with patch("builtins.input", answer), redirect_stdout(printed):
        optimizer.optimize()
    return "\n".join(["```text", *questions, "```"]) + "\n"


if __name__ == "__main__":
    dace.Config.set("optimizer", "match_exception", value=True)
    page = replaced((FOLDER / "transformations.md").read_text(), "table", table())
    give("transformations.md", replaced(page, "menu", menu()))
