"""Traversal: loops over edges, nodes or pairs with statements in program form (Hector's traversal template)."""

from dacergnn.library_nodes.traversal.node import Traversal

__all__ = ["Traversal"]
