"""Says what a step changed: statements removed and added, boxes that are new, and choices that were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dacergnn.viewer.boxes import Box, results_of


@dataclass(frozen=True)
class Difference:
    """Describes how a program differs from the one of the step before.

    Attributes:
        removed: Statements that are gone.
        added: Statements that are new.
        fused: Names of the results that one operator now computes together.
        chosen: What was chosen for operators, and encodings that they read now, after the name of the operator.
        marks: "new" or "changed", by the name of the operator; others have the same statements and choices as before.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    marks: dict[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return bool(self.marks or self.removed or self.chosen)

    @classmethod
    def of(cls, before: Sequence[Box], after: Sequence[Box]) -> Difference:
        """Returns the difference between the operators of two steps."""
        old, new = (Counter(text for box in boxes for text in box.statements) for boxes in (before, after))
        fresh, known = new - old, {box.statements: box for box in before}
        marks: dict[str, str] = {}
        fused: list[str] = []
        chosen: list[str] = []
        for box in after:
            same = known.get(box.statements)
            if any(text in fresh for text in box.statements):
                marks[box.name] = "new"
            elif same is None or same.choices != box.choices or same.note != box.note:
                marks[box.name] = "changed"
            if same is None and len(box.statements) > 1:
                fused.append(f"{', '.join(results_of(box))}: {box.note}")
            had = {*same.choices, *same.encodings} if same is not None else set[str]()
            chosen += [f"{box.name}: {text}" for text in box.choices if text not in had]
            read = [name for name in box.encodings if name not in had]
            chosen += [f"{box.name} reads {', '.join(read)}"] if read else []
        return cls(tuple((old - new).elements()), tuple(fresh.elements()), tuple(fused), tuple(chosen), marks)
