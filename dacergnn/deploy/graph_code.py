"""C++ that encodes the graphs of a call: once for all programs that run on a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dacergnn.deploy.network import Graph
from dacergnn.deploy.sizes import cpp
from dacergnn.errors import UnsupportedCallError
from dacergnn.graph.encoding_steps import AS_THEY_ARE, Steps, reads_pairs, steps_of
from dacergnn.graph.spaces import FEWER, GRAPH_SPACES, PARTED, PARTS, parse_encoding, part
from dacergnn.runtime.lower import Lowered

_ALIKE = {"ids": "counted", "idx": "zeros", "ptr": "whole"}
"""Functions that make encodings of rows that all have one type, by the forms of these."""


@dataclass
class EncodedGraph:
    """Holds C++ that encodes a graph, and the expressions of its encodings and sizes.

    Args:
        lines: Statements.
        encodings: Expressions by the names of encodings.
        sizes: Expressions by row spaces.
    """

    lines: list[str] = field(default_factory=list[str])
    encodings: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[str, str] = field(default_factory=dict[str, str])


def encode(graph: Graph, programs: Sequence[Lowered], slot: Callable[[], str]) -> EncodedGraph:
    """Returns the code that makes what programs read of a graph.

    Args:
        slot: Returns the expression of a buffer that lives as long as the graph.

    Raises:
        UnsupportedCallError: A program reads an encoding that C++ does not make.
    """
    names = tuple(dict.fromkeys(name for program in programs for name in program.encodings))
    spaces = _spaces(programs) | {parse_encoding(name).space for name in names}
    writer = _Writer(graph, graph.name, graph.name, slot)
    made = writer.write(tuple([n for n in names if not part(parse_encoding(n).space)]), spaces)
    for own in PARTS:
        of_part = tuple([n for n in names if part(parse_encoding(n).space) == own])
        if of_part or any(part(space) == own for space in spaces):
            writer.add_part(own, of_part)
    return made


def encode_rows(rows: str, program: Lowered, slot: Callable[[], str]) -> EncodedGraph:
    """Returns the same for a program over nodes alone, of which there are ``rows``."""
    sizes = {"NS": rows, "ND": rows, "E": "0", "R": "1", "T": "1", "ONE": "1", "RNS": rows, "U": "0", "V": "0"}
    made = EncodedGraph(sizes=sizes)
    for name in program.encodings:
        _one(made, name, slot)
    return made


def _spaces(programs: Sequence[Lowered]) -> set[str]:
    spaces: set[str] = set()
    for program in programs:
        spaces |= {space for space, _ in program.spaces.values()}
        spaces |= {buffer.rows for buffer in (*program.outputs, *program.intermediates)}
        spaces |= set(program.signature) & set(GRAPH_SPACES)
    return spaces


def _one(made: EncodedGraph, name: str, slot: Callable[[], str]) -> None:
    """Adds an encoding of rows that all have one type."""
    form, space, _ = parse_encoding(name)
    if form not in _ALIKE:
        raise _unknown(name)
    variable = made.encodings[name] = f"{name}_{len(made.lines)}"
    made.lines.append(f"Index *const {variable} = deploy::{_ALIKE[form]}({slot()}, {made.sizes[space]});")


def _unknown(name: str) -> UnsupportedCallError:
    return UnsupportedCallError(
        f"A program of the model reads the encoding {name}, which a C library does not make; compile the model with "
        'Config(adjacency="csr") and without a plan of your own.'
    )


class _Writer:
    """Writes the encodings of a graph, or of a part of its edges.

    Args:
        edges: The edges in C++.
        name: What names of new variables begin with.
    """

    def __init__(self, graph: Graph, edges: str, name: str, slot: Callable[[], str]) -> None:
        self.graph, self.slot, self.edges, self.name = graph, slot, edges, name
        sources, destinations, types, node_types = graph.sizes
        self.made = EncodedGraph(
            sizes={
                "NS": cpp(sources), "ND": cpp(destinations), "E": f"{edges}.count", "R": f"Number({types})",
                "T": f"Number({node_types})", "ONE": "Number(1)", "RNS": f"(Number({types}) * {cpp(sources)})",
            }
        )  # fmt: skip
        self._ranges: dict[str, str] = {}

    def write(self, names: tuple[str, ...], spaces: set[str]) -> EncodedGraph:
        made, several = self.made, self.graph.sizes[2] > 1
        known = {"idx_E_src": f"{self.edges}.src", "idx_E_dst": f"{self.edges}.dst"}
        known["idx_E_etype"] = f"{self.edges}.type"
        if self.graph.typed:
            known |= {"idx_NS_ntype": f"{self.edges}.node_type", "idx_ND_ntype": f"{self.edges}.node_type"}
        parted = any(map(part, spaces))
        if reads_pairs(names) or spaces & {"U", "V"} or "ids_E_etype_src" in names or parted:
            pairs = f"{self.name}_pairs"
            made.lines.append(f"const deploy::Pairs {pairs} = deploy::count_pairs({self.slot()}, {self.edges});")
            made.sizes |= {"U": f"{pairs}.sources", "V": f"{pairs}.destinations"}
            known |= {"ptr_E_srcpair": f"{pairs}.source_starts", "ptr_E_dstpair": f"{pairs}.destination_starts"}
            known["ids_E_etype_src"] = f"{pairs}.by_source"
        pending = [name for name in names if name not in known]
        steps = steps_of(tuple(pending), frozenset(known), several, self.graph.typed)
        if steps.made:
            self._encode(steps, known)
        for name, other, space in steps.shared:
            made.encodings[name] = made.encodings.get(other) or known.get(other) or self._range(space)
            if other == AS_THEY_ARE:
                made.encodings[name] = self._range(space)
            elif other == "ids_E_etype_src":
                made.encodings[name] = self._or_range(known[other], "E")
        for name in names:
            if name == "ids_E_etype_src":
                made.encodings[name] = self._or_range(known[name], "E")
            elif name in known:
                made.encodings[name] = known[name]
            elif name not in made.encodings:
                self._other(name, known)
        return made

    def _encode(self, steps: Steps, known: dict[str, str]) -> None:
        """Writes the call of the encoder that Python calls as well."""
        made, own = self.made, f"{self.name}_steps"
        counts = [f"{made.sizes[space]}{' + 1' if longer else ''}" for _, space, longer in steps.made]
        words = ", ".join(map(str, [4, *steps.words]))
        made.lines.append(f"static constexpr Number {own}_words[] = {{{words}}};")
        made.lines.append(f"const Number {own}_counts[] = {{{', '.join(counts)}}};")
        made.lines.append(f"Index *{own}_memory = {self.slot()}.of<Index>(deploy::total({own}_counts));")
        sizes = [made.sizes[space] for space in steps.spaces]
        head = [f"Number({len(sizes)})", *sizes, "0", *[f"(Number){known[name]}" for name in steps.inputs]]
        room = len(head) + len(steps.made)
        made.lines.append(f"Number {own}[{room}] = {{{', '.join(head)}}};")
        made.lines.append(f"deploy::place({own} + {len(head)}, {own}_memory, {own}_counts);")
        made.lines.append(f"if (dacergnn::encode({own}_words, {own}) < 0)")
        made.lines.append('  deploy::fail(deploy::kNoMemory, "There is no memory to encode the edges.");')
        for i, (name, space, _) in enumerate(steps.made):
            variable = made.encodings[name] = f"{self.name}_{name}"
            made.lines.append(f"Index *{variable} = (Index *){own}[{len(head) + i}];")
            if name.startswith("arange_"):
                self._ranges[space] = variable
            elif parse_encoding(name).kind == "ids":
                made.lines.append(f"if (!{variable}) {variable} = deploy::counted({self.slot()}, {made.sizes[space]});")

    def _range(self, space: str) -> str:
        """Returns the numbers of the rows of a space."""
        if space not in self._ranges:
            variable = self._ranges[space] = f"{self.name}_arange_{space}"
            self.made.lines.append(
                f"Index *const {variable} = deploy::counted({self.slot()}, {self.made.sizes[space]});"
            )
        return self._ranges[space]

    def _or_range(self, order: str, space: str) -> str:
        variable = f"{self.name}_order_{len(self.made.lines)}"
        counted = f"deploy::counted({self.slot()}, {self.made.sizes[space]})"
        self.made.lines.append(f"Index *const {variable} = {order} ? {order} : {counted};")
        return variable

    def _other(self, name: str, known: dict[str, str]) -> None:
        form, space, paths = parse_encoding(name)
        path = paths[-1]
        typed = self.graph.typed and self.graph.sizes[3] > 1
        if len(paths) == 1 and (path == "one" or (path in ("ntype", "srctype", "dsttype") and not typed)):
            _one(self.made, name, self.slot)
            return
        if form == "idx" and path in ("srctype", "dsttype") and space in ("E", "U", "V"):
            ends = f"idx_{space}_{path.removesuffix('type')}"
            if ends not in self.made.encodings and ends not in known:
                self._alone(ends, known)
            rows = known.get(ends) or self.made.encodings[ends]
            self._add(name, f"deploy::taken({self.slot()}, {self.edges}.node_type, {rows}, {self.made.sizes[space]})")
            return
        if form == "idx" and space == "R" and path in ("srctype", "dsttype"):
            nodes = known[f"idx_E_{path.removesuffix('type')}"]
            self._add(name, f"deploy::joined_types({self.slot()}, {self.edges}, {nodes})")
        elif form == "idx" and (space, path) == ("E", "typedsrc"):
            self._add(name, f"deploy::typed_sources({self.slot()}, {self.edges})")
        else:
            raise _unknown(name)

    def _add(self, name: str, value: str) -> None:
        variable = f"{self.name}_{name}"
        self.made.lines.append(f"Index *const {variable} = {value};")
        self.made.encodings[name] = variable

    def add_part(self, own: str, names: tuple[str, ...]) -> None:
        """Adds encodings of the edges of a part, whose row spaces have the suffix ``own``."""
        variable, made = f"{self.name}_{own}", self.made
        fewer = str(FEWER[own] == "src").lower()
        arguments = f"{self.slot()}, {self.edges}, {self.name}_pairs, {fewer}"
        made.lines.append(f"const deploy::Part {variable} = deploy::part_of({arguments});")
        inner = {name: name.replace(f"{own}_", "_", 1) for name in names if "edge" not in parse_encoding(name).paths}
        orders = {n: f"ids_E_{parse_encoding(n).paths[0]}" for n in names if parse_encoding(n).kind == "via"}
        wanted = (*inner.values(), *[order for n, order in orders.items() if n not in inner])
        writer = _Writer(self.graph, f"{variable}.edges", variable, self.slot)
        part_made = writer.write(tuple(dict.fromkeys(wanted)), {"E", "U", "V"})
        made.lines += part_made.lines
        made.sizes |= {f"{space}{own}": part_made.sizes[space] for space in PARTED}
        made.encodings |= {name: part_made.encodings[n] for name, n in inner.items()}
        for name in names:
            form, _, paths = parse_encoding(name)
            if name in inner:
                continue
            if form == "idx":
                made.encodings[name] = f"{variable}.rows"
            elif form == "via" and paths[-1] == "edge":
                rows = part_made.encodings[orders[name]]
                self._add(name, f"deploy::taken({self.slot()}, {variable}.rows, {rows}, {made.sizes['E' + own]})")
            else:
                raise _unknown(name)

    def _alone(self, name: str, known: dict[str, str]) -> None:
        """Makes one more encoding by steps of its own."""
        steps = steps_of((name,), frozenset(known), self.graph.sizes[2] > 1, self.graph.typed)
        if not steps.made:
            raise _unknown(name)
        own = self.name
        self.name = f"{own}_{name}"
        self._encode(steps, known)
        self.name = own
