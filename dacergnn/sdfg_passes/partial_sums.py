"""Cuts a program into sums that the owners of sources compute, and a rest that the owners of destinations compute.

(Partial sums of destinations, in place of the rows of sources, where a graph is divided over processes.)

Precondition: an inter-operator SDFG whose operators hold one statement each, before gradients are generated.

Before, a program on the edges that end at own nodes::

    def p(g, x: NS[64], W: R[64, 8], root: ONE[64, 8]):
        for e in g.edges(): e["h"] = linear(e.src.x, W[e.etype])
        for n in g.dst_nodes(): for e in n.incoming_edges(): n["sum"] += e["h"]
        for n in g.dst_nodes(): n["out"] = n["sum"] + linear(n.x, root)
        return out

After, a program on the edges that start at own nodes, and one on own nodes, which takes the sums of all processes::

    def p_sums(g, x: NS[64], W: R[64, 8]):
        for e in g.edges(): e["h"] = linear(e.src.x, W[e.etype])
        for n in g.dst_nodes(): for e in n.incoming_edges(): n["sum"] += e["h"]
        return sum

    def p_rest(g, sum: ND[8], x: ND[64], root: ONE[64, 8]):
        for n in g.dst_nodes(): n["out"] = n["sum"] + linear(n.x, root)
        return out

Saves: the rows of x that processes send to each other, where the sums are fewer or narrower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import dace

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import TYPE_SPACES, Ref, Statement
from dacergnn.library_nodes.node import copied
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.listing import Listing
from dacergnn.program.printer import print_program

_PATHS: dict[str, frozenset[str]] = {
    "E": frozenset(("", "src", "etype", "srctype", "dsttype", "one")),
    "NS": frozenset(("", "ntype", "one")),
    "ND": frozenset(("", "ntype", "one")),
    **dict.fromkeys(TYPE_SPACES, frozenset(("", "one"))),
}
"""Paths that a process can follow, by row space: on edges the owner of their source, on nodes their owner."""
_OF_NODES = frozenset((*TYPE_SPACES, "NS", "ND"))


@dataclass(frozen=True)
class SumsProgram:
    """Holds the result of `cut_sums`.

    Args:
        sums: The program on the edges that start at own nodes.
        names: Its results [ND, ...], which are complete once the results of all processes are added up.
        rest: The program on own nodes, whose inputs of nodes have rows of ND; None if all results are sums.
        rest_names: Its results.
    """

    sums: str
    names: tuple[str, ...]
    rest: str | None
    rest_names: tuple[str, ...]


def cut_sums(sdfg: dace.SDFG) -> SumsProgram:
    """Cuts a program at its sums over the incoming edges of nodes.

    Args:
        sdfg: An inter-operator SDFG as it was parsed; stays as it is.

    Raises:
        ProgramError: A result depends on edges by more than sums whose terms depend on the source and the edge alone;
            attention also depends on the destination.
    """
    listing = Listing.of(copied(sdfg))
    listing.settle()
    before, sums = _of_sources(listing)
    after = _of_destinations(listing, sums)
    read = {*listing.outputs, *(ref.name for statement in after for ref in statement.reads)}
    names = tuple(s.target.name for s in before if s.target.name in sums and s.target.name in read)
    if not names:
        raise ProgramError(f'"{sdfg.name}" has no sums of which processes could have parts.')
    own = {name: Rows("ND", rows.shape) if rows.space == "NS" else rows for name, rows in listing.arrays.items()}
    dtype = next(iter(sdfg.arrays.values())).dtype
    rest_names = tuple(name for name in listing.outputs if name not in sums)
    first = _listing(listing, before, listing.arrays, names).build(f"{sdfg.name}_sums", dtype)
    rest = _listing(listing, after, own, rest_names).build(f"{sdfg.name}_rest", dtype) if rest_names else None
    return SumsProgram(print_program(first), names, None if rest is None else print_program(rest), rest_names)


def _of_sources(listing: Listing) -> tuple[list[Statement], set[str]]:
    """Returns the statements that owners of sources can run, and the names of the sums among their results."""
    spaces = (*TYPE_SPACES, "NS", "E")
    known = {name for name in listing.inputs if listing.space(name) in spaces}
    found: list[Statement] = []
    sums: set[str] = set()
    for statement in listing.statements:
        name, space = statement.target.name, statement.space
        if space not in spaces or not all(ref.name in known and ref.path in _PATHS[space] for ref in statement.reads):
            continue
        if statement.op == "=" and statement.target == Ref(name):
            known.add(name)
        elif space == "E" and statement.op == "+=" and statement.target == Ref(name, "dst"):
            sums.add(name)
        else:
            continue
        found.append(statement)
    return found, sums


def _of_destinations(listing: Listing, sums: set[str]) -> list[Statement]:
    """Returns the statements between the sums and the results, all on destinations.

    Raises:
        ProgramError: One of them depends on edges.
    """
    found: list[Statement] = []
    needed = {*listing.outputs}
    for statement in reversed(listing.statements):
        name, space = statement.target.name, statement.space
        if name not in needed or name in sums:
            continue
        on_nodes = space in _OF_NODES and statement.op == "=" and statement.target == Ref(name)
        if not on_nodes or any(ref.path not in _PATHS[space] for ref in statement.reads):
            raise ProgramError(f'"{name}" depends on edges by more than sums over sources.')
        needed |= {ref.name for ref in statement.reads}
        found.insert(0, replace(statement, space="ND") if space == "NS" else statement)
    for name in listing.outputs:
        if listing.space(name) != "ND" or name in listing.inputs:
            raise ProgramError(f'"{name}" is no result of destinations that follows from sums.')
    return found


def _listing(whole: Listing, statements: list[Statement], arrays: dict[str, Rows], outputs: tuple[str, ...]) -> Listing:
    """Returns a part of a program, with the inputs that it reads."""
    part = Listing(dict(arrays), (), outputs, statements, whole.item)
    part.drop_unused()
    made = {statement.target.name for statement in part.statements}
    read = {ref.name: None for statement in part.statements for ref in statement.reads}
    part.inputs = tuple(name for name in read if name not in made)
    part.arrays = {name: arrays[name] for name in (*read, *made)}
    return part
