"""Row spaces, the maps between them, and the names of encodings, which graph, nodes and run time share.

Sizes: NS source nodes, ND destination nodes, E edges, U unique (source, edge type) pairs, V unique
(destination, edge type) pairs, R edge types, T node types, ONE (always 1), RNS = R * NS.
Edges are in the canonical order (etype, dst), and equal ones in the order of the user; U rows are in the order
(etype, src), V rows in (etype, dst).

The edges are divided into two parts by their relations. The first part has the relations with no more (source, type)
pairs than (destination, type) pairs; the second part has the others. Es, Us and Vs are the rows of the first part,
Ed, Ud and Vd are the rows of the second, in the same order.

A graph with sparse features (`HeteroGraph.with_features`) has further spaces, for sources (suffix S) and destinations
(suffix D): ZS, ZD the nonzeros of the features; FS, FD their columns; TFS, TFD all (node type, column) pairs; RFS, RFD
all (edge type, column) pairs; UZS, VZS, VZD the nonzeros of the end points of U and V rows, pair by pair. Nonzeros
are in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from dacergnn.errors import EncodingError

FEWER: dict[str, str] = {"s": "src", "d": "dst"}
"""The end point with fewer pairs in the relations of a part, by the suffix of the part's row spaces."""
PARTS: tuple[str, ...] = tuple(FEWER)
PARTED: tuple[str, ...] = ("E", "U", "V")
"""Row spaces whose rows are divided into parts."""
SPACES: tuple[str, ...] = ("NS", "ND", "E", "U", "V", "R", "T", "ONE", "RNS")
GRAPH_SPACES: tuple[str, ...] = (*SPACES, *(space + part for part in PARTS for space in PARTED))
"""Row spaces that every graph has."""
NODE_SIDES: dict[str, str] = {"S": "NS", "D": "ND"}
"""Nodes that sparse features belong to, by the suffix of the row spaces of the features."""
PAIR_NONZEROS: dict[str, tuple[str, str]] = {"UZS": ("U", "src"), "VZS": ("V", "dst"), "VZD": ("V", "dst")}
"""Row spaces of the nonzeros of pairs, each with the space of the pairs and the path to the node with the features."""
NONZEROS: tuple[str, ...] = (*(f"Z{side}" for side in NODE_SIDES), *PAIR_NONZEROS)
FEATURE_SPACES: tuple[str, ...] = (
    *NONZEROS,
    *(columns + side for columns in ("F", "TF", "RF") for side in NODE_SIDES),
)
"""Row spaces that graphs with sparse features have in addition."""
ROW_SPACES: tuple[str, ...] = (*GRAPH_SPACES, *FEATURE_SPACES)

_WHOLE: dict[tuple[str, str], str] = {
    ("E", "src"): "NS",
    ("E", "dst"): "ND",
    ("E", "etype"): "R",
    ("E", "srcpair"): "U",
    ("E", "dstpair"): "V",
    ("E", "srctype"): "T",
    ("E", "dsttype"): "T",
    ("E", "typedsrc"): "RNS",
    ("U", "src"): "NS",
    ("U", "etype"): "R",
    ("U", "srctype"): "T",
    ("V", "dst"): "ND",
    ("V", "etype"): "R",
    ("V", "dsttype"): "T",
    ("NS", "ntype"): "T",
    ("ND", "ntype"): "T",
    ("R", "srctype"): "T",
    ("R", "dsttype"): "T",
}
MAPS: dict[tuple[str, str], str] = {
    **_WHOLE,
    **{
        (space + part, path): reached + part if reached in PARTED else reached
        for part in PARTS
        for (space, path), reached in _WHOLE.items()
        if space in PARTED and path != "typedsrc"
    },
    **{("E" + part, "edge"): "E" for part in PARTS},
    **{
        (f"Z{side}", path): reached
        for side, nodes in NODE_SIDES.items()
        for path, reached in (("row", nodes), ("column", f"F{side}"), ("typedcolumn", f"TF{side}"))
    },
    **{
        (space, path): reached
        for space, (pairs, _) in PAIR_NONZEROS.items()
        for path, reached in (("pair", pairs), ("nonzero", space[1:]), ("typedcolumn", f"RF{space[-1]}"))
    },
    **{(space, "one"): "ONE" for space in ROW_SPACES},
}
"""(row space, path) -> row space that the path leads to."""
GRAPH_MAPS: dict[tuple[str, str], str] = {way: reached for way, reached in MAPS.items() if way[0] in GRAPH_SPACES}
"""The maps of every graph."""

TYPE_PATHS: tuple[str, ...] = ("etype", "ntype", "srctype", "dsttype", "one")
"""Paths to the type of a row, which selects typed weights. `one` is the case of a single type."""

JOINED_TYPES: tuple[tuple[str, str], ...] = (("R", "srctype"), ("R", "dsttype"))
"""Maps that only exist if each edge type joins one source type with one destination type."""

ENCODING_KINDS: tuple[str, ...] = ("idx", "ptr", "ids", "via", "len", "ell", "reg", "hyb")


class Encoding(NamedTuple):
    """Holds a parsed encoding name: `idx_E_src` is ("idx", "E", ("src",)), `ids_E_etype_dst` has two paths."""

    kind: str
    space: str
    paths: tuple[str, ...]


def kind(space: str) -> str:
    """Returns the row space without its part, such as E for Es."""
    return space[:-1] if space[:-1] in PARTED and space[-1] in PARTS else space


def part(space: str) -> str:
    """Returns the part that a row space belongs to, "" for the whole graph."""
    return space[len(kind(space)) :]


def has_parts(sizes: Mapping[str, int]) -> bool:
    """Tells whether both parts of the edges have rows, so that their orders may differ."""
    return all(sizes.get("E" + part) for part in PARTS)


def target_space(space: str, path: str) -> str:
    """Returns the row space that `path` leads to from `space`; raises EncodingError if there is no such map."""
    if space not in ROW_SPACES:
        raise EncodingError(f"{space!r} is not a row space; use one of {', '.join(SPACES)}.")
    try:
        return MAPS[space, path]
    except KeyError:
        known = ", ".join(p for s, p in MAPS if s == space)
        raise EncodingError(f"Rows of {space} have no map {path!r}; use one of {known}.") from None


def through(space: str, via: str, path: str) -> str | None:
    """Returns the path q with ``path`` = ``via`` followed by q, for rows of ``space``; None if there is none."""
    if path == via:
        return ""
    reached = MAPS[space, via]
    if (reached, path) in MAPS and MAPS[reached, path] == MAPS.get((space, path)):
        return path
    return "ntype" if (via, path) in (("src", "srctype"), ("dst", "dsttype")) else None


def along(space: str, via: str, path: str) -> str | None:
    """Returns the path from ``space`` that equals ``via`` followed by ``path``; None if it has no name."""
    if path == "" or via == "":
        return path or via
    name = {("src", "ntype"): "srctype", ("dst", "ntype"): "dsttype"}.get((via, path), path)
    return name if MAPS.get((space, name)) == MAPS[MAPS[space, via], path] else None


@cache
def encoding_name(kind: str, space: str, *paths: str) -> str:
    """Returns the name of an encoding, e.g. ``encoding_name("ids", "E", "etype", "src") == "ids_E_etype_src"``.

    `idx`, `ptr`, `len` and `reg` take one path; `ids` takes one, or a type path and a path; `via` takes the path by
    which rows are ordered, then the path to the result; `ell` and `hyb` take the first or both of these. Raises
    EncodingError otherwise.
    """
    name = "_".join((kind, space, *paths))
    if kind not in ENCODING_KINDS:
        raise EncodingError(f"{name!r} has the kind {kind!r}; use one of {', '.join(ENCODING_KINDS)}.")
    for path in paths:
        target_space(space, path)
    if len(paths) == 2 and kind == "ids":
        if paths[0] not in TYPE_PATHS:
            raise EncodingError(f"{name!r}: the first of two paths must be one of {', '.join(TYPE_PATHS)}.")
    elif len(paths) not in {"via": (2,), "ell": (1, 2), "hyb": (1, 2)}.get(kind, (1,)):
        limits = {
            "ids": "one path, or a type path and a path",
            "via": "exactly two paths",
            "ell": "one or two paths",
            "hyb": "one or two paths",
        }
        limit = limits.get(kind, "exactly one path")
        raise EncodingError(f"{name!r} has {len(paths)} paths; {kind} takes {limit}.")
    return name


@cache
def parse_encoding(name: str) -> Encoding:
    """Returns the parts of an encoding name: the inverse of `encoding_name`. Raises EncodingError for other names."""
    parts = name.split("_")
    if len(parts) < 3:
        raise EncodingError(f"{name!r} is no encoding; names read like idx_E_src, ptr_E_dst, ids_E_etype_src.")
    kind, space, *paths = parts
    encoding_name(kind, space, *paths)
    return Encoding(kind, space, tuple(paths))


def is_encoding(name: str) -> bool:
    """Tells whether an array is an encoding, by its name."""
    return name.split("_")[0] in ENCODING_KINDS and name.count("_") >= 2
