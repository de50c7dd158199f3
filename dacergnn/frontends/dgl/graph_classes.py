"""Tells graphs of DGL from other objects, without an import of DGL."""

from __future__ import annotations

from functools import lru_cache

STANDS_IN = "_dacergnn_stands_in"
"""Name of an attribute of classes whose objects stand for a graph of DGL in a capture."""


def is_graph(value: object) -> bool:
    """Returns whether an object is a DGL graph or block; dgl is imported already if it is."""
    return _known(type(value))


def is_graph_class(kind: type) -> bool:
    """Returns whether objects of a class are DGL graphs or blocks."""
    of_dgl = any(c.__module__ == "dgl.heterograph" and c.__name__ == "DGLGraph" for c in kind.__mro__)
    return of_dgl and not hasattr(kind, STANDS_IN)


_known = lru_cache(maxsize=1024)(is_graph_class)  # torch, which follows `is_graph_class`, looks into no cache
