"""CUDA of a loop nest in which several blocks share each hub, a group of very many rows.

Every loop of a group becomes a launch of its own for hubs: in each, a block does its part of the rows, and leaves what
it has summed up in scratch memory, where the blocks of the next launch put it together in a fixed order. Statements
between the loops are run anew by each of them, in scratch of its own where their rows are needed in memory; what is
stored for the group, the first block of the last launch stores. The first launch is also that over all other groups.
"""

from __future__ import annotations

import re

from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.device_code import DeviceCode
from dacergnn.library_nodes.form import Statement
from dacergnn.library_nodes.traversal.expansions.cuda_nest import DeviceNest
from dacergnn.library_nodes.traversal.expansions.cuda_statements import MERGE
from dacergnn.library_nodes.traversal.nest import Loop

MOST_CHUNKS = 2048
"""Partial results of hubs that there may be (``kMostChunks`` of ``hubs.cuh``)."""


class DividedNest(DeviceNest):
    """A nest whose hubs are divided, unless a loop of theirs has another one inside: then one block has a hub."""

    bodies: list[str]

    def _write(self) -> DeviceCode:
        if len(self.levels.spaces) > 1:
            self.bodies = self._bodies()
            self.bodies = self._bodies()  # now that it is known what goes through memory
        else:
            self.bodies = []
        return super()._write()

    def _calls(self, main: str) -> list[str]:
        if not self.bodies:
            return [main]
        groups = f"{self._groups()}, {extent(self.levels.spaces[0])}"
        first, *later = self.bodies
        return [f"{main}, {first}", *(f"traverse_hubs<Value, {self.held}>({groups}, {body}" for body in later)]

    @property
    def scratch(self) -> list[tuple[str, int]]:
        return [*super().scratch, *(("ONE", MOST_CHUNKS * self.homes[name].width) for _, name in self._of_chunks())]

    def _before(self) -> str:
        parts = (
            f"Value* const {kind}_{name} = dacergnn::cuda::take<Value>({MOST_CHUNKS} * {self.homes[name].width});\n"
            for kind, name in self._of_chunks()
        )
        return super()._before() + "".join(parts)

    def _of_chunks(self) -> list[tuple[str, str]]:
        """Returns what chunks have in scratch: partial results of what groups reduce, and copies of their rows."""
        if not self.bodies:
            return []
        top = self.levels.spaces[0]
        reduced = [("part", name) for name, home in self.homes.items() if home.reduced and home.space == top]
        return [*reduced, *(("copy", name) for name in self.at_parts)]

    def _bodies(self) -> list[str]:
        """Returns what a block does at a part of a hub, for each launch; nothing where hubs are not divided."""
        (top,) = self.loops
        inner = [item for item in top.items if isinstance(item, Loop)]
        if not all(self.is_leaf(loop) for loop in inner):
            return []
        stored = any(home.stored and home.space == top.space for home in self.homes.values())
        return [self._part_of(top, number) for number in range(len(inner) + stored)]

    def _part_of(self, top: Loop, number: int) -> str:
        """The part of a loop over rows of the group, given its number; behind the last, all that is left to do."""
        loops = [item for item in top.items if isinstance(item, Loop)]
        last = number == len(loops)
        self.finishing = last
        self.around[top.space] = top
        steps: list[tuple[str, str]] = []  # what is computed, and how
        for item in top.items:
            if isinstance(item, Statement):
                steps.append((item.target.name, self.statement(item, top)))
            elif loops.index(item) == number:
                steps.append(("", self._share(item, top)))
                break
            else:
                steps += [(s.target.name, self._together(s)) for s in item.statements() if s.target.path]
        text = ""
        for name, step in reversed(steps):
            if not name or (last and self.homes[name].stored) or _uses(text, name):
                text = f"{step}\n{text}"
        del self.around[top.space]
        self.finishing = True
        used = set(re.findall(r"\bown_\w+", text))
        lines = [
            "[=] __device__(const dacergnn::cuda::Part part) {",
            "if (part.number > 0) return;" if last else "",
            "const dacergnn::cuda::Block crew{};\n(void)crew;",
            f"const int64_t row_{top.space} = part.group;\n(void)row_{top.space};",
            *(line for line in self._declarations(top) if any(f" {name}[" in line for name in used)),
            text,
        ]
        return "\n".join(line for line in lines if line) + "}"

    def _share(self, loop: Loop, top: Loop) -> str:
        """A part of a loop, and its partial results."""
        space = loop.space
        begin, end, first, last = (f"{name}_{space}" for name in ("begin", "end", "from", "to"))
        lines = [
            *self._range(space, begin, end),
            f"const int64_t {first} = part.begin({begin}, {end}), {last} = part.end({begin}, {end});",
            self._rows(loop, first, last),
        ]
        for statement in loop.statements():
            if statement.target.path:
                name = statement.target.name
                row = f"part_{name} + part.chunk() * {self.homes[name].width}"
                lines += [self.merged(statement, loop), self.stored_row(name, row)]
        return "{\n" + "\n".join(lines) + "\n}"

    def _together(self, statement: Statement) -> str:
        """Returns what the parts of a loop have reduced, put together."""
        name, held = statement.target.name, self._held(statement.target.name)
        sizes = f"{held.lanes}, {held.vector}, {self.homes[name].width}"
        merge = f"dacergnn::cuda::merge_parts<{sizes}>(crew, part, part_{name}, own_{name}"
        return f"{merge}, dacergnn::cuda::{MERGE[statement.op]}());\n{self.result(statement, None)}"


def _uses(code: str, name: str) -> bool:
    return re.search(rf"\b(own|copy|kept)_{name}\b", code) is not None
