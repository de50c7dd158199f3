"""Finds the graph encodings that the kernel of a statement reads: access schemes (Hector 3.6) and orders of rows."""

from __future__ import annotations

from dacergnn.graph.spaces import MAPS, NONZEROS, PAIR_NONZEROS, TYPE_PATHS, encoding_name, kind
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Ref, Statement

# Groupings in which the rows already are in order, so that no list of row ids is needed.
_IN_ORDER = {
    ("E", "etype"),
    ("E", "dstpair"),
    ("U", "etype"),
    ("V", "etype"),
    ("E", "etype", "dst"),
    ("E", "etype", "dstpair"),
    ("U", "etype", "src"),
    ("V", "etype", "dst"),
    ("E", "edge"),
    *((space, "pair" if space in PAIR_NONZEROS else "row") for space in NONZEROS),
}


def index_name(space: str, path: str) -> str | None:
    """Returns the encoding of the row that ``path`` leads to, for all rows of ``space``; None for own rows and ONE."""
    return encoding_name("idx", space, path) if path not in ("", "one") else None


def order_name(space: str, *paths: str) -> str | None:
    """Returns the encoding that lists the rows of ``space`` grouped by ``paths``; None if they are in that order."""
    if paths == ("one",) or (kind(space), *paths) in _IN_ORDER:
        return None
    if paths[0] == "one":
        paths = paths[1:]
    return encoding_name("ids", space, *paths)


def ordered_index_name(space: str, order: str, path: str) -> str | None:
    """Returns the encoding of the row that ``path`` leads to, for all rows of ``space`` in the order of ``order``.

    For ``path`` "" this is the row itself; None where no list is needed.
    """
    ids = order_name(space, order)
    if ids is None or path == "":
        return index_name(space, path) if path else ids
    return encoding_name("via", space, order, path) if path != "one" else None


def pointer_name(space: str, path: str) -> str | None:
    """Returns the encoding that delimits the groups of ``path``; None for ONE, a single group."""
    return None if path == "one" else encoding_name("ptr", space, path)


def group_path(statement: Statement) -> str:
    """Returns the path by which a kernel groups rows: the weight's for `linear`, else the target's ("" for a map)."""
    gemm = statement.gemm
    if gemm is not None and gemm.kind == "linear":
        return gemm.w.path
    return statement.target.path


def statement_encodings(statement: Statement) -> list[str]:
    """Returns the names of the encodings that the CPU kernel of ``statement`` reads, without repetition."""
    space, gemm, target = statement.space, statement.gemm, statement.target.path
    group = group_path(statement)
    names: list[str | None] = []

    def gather(ref: Ref) -> None:
        if gemm is not None and ref.path == "one":
            names.append(encoding_name("idx", space, "one"))  # kernels need a list even for one repeated row
            return
        if ref.path != group or gemm is not None or shares_groups(statement):
            names.append(index_name(space, ref.path))

    if gemm is not None and gemm.kind in WEIGHT_PRODUCTS:
        gather(gemm.x)
        gather(gemm.w)
    elif gemm is not None:
        names.append(pointer_name(space, group))
        scatter = gemm.kind == "linear" and target != ""
        names.append(order_name(space, group, target) if scatter else order_name(space, group))
        if scatter:
            names += [index_name(space, target), pointer_name(space, target)]
        gather(gemm.x)
        if gemm.kind == "outer_prod":
            gather(gemm.w)
    else:
        if group:
            names += [pointer_name(space, group), order_name(space, group)]
        for ref in statement.reads:
            gather(ref)
    return list(dict.fromkeys(n for n in names if n is not None))


def neighbour_encodings(statement: Statement, path: str) -> list[str]:
    """Returns the encodings that a loop over the rows which lead to one row by ``path`` reads, without repetition."""
    space = statement.space
    names = [pointer_name(space, path), order_name(space, path)]
    names += [ordered_index_name(space, path, ref.path) for ref in statement.reads if ref.path != path]
    return list(dict.fromkeys(n for n in names if n is not None))


def is_few(path: str) -> bool:
    """Returns whether a path leads to few rows (types), whose long groups several threads share."""
    return path in TYPE_PATHS


def shares_groups(statement: Statement) -> bool:
    """Returns whether several threads share a group of this reduction, so that a row has to look up its group."""
    return is_few(statement.target.path) and statement.op == "+="


def target_is_prefix(statement: Statement, array_space: str) -> bool:
    """Returns whether the target array has more rows than the map reaches (an NS array written through ND)."""
    space, path = statement.space, statement.target.path
    return (MAPS[space, path] if path else space) != array_space


def pure_encodings(statement: Statement) -> list[str]:
    """Returns the names of the index lists that the `pure` expansion reads, one for every map in the statement."""
    paths = [ref.path for ref in (*statement.reads, statement.target)]
    names = (index_name(statement.space, path) for path in paths)
    return list(dict.fromkeys(n for n in names if n is not None))
