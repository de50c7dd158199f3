"""Tells which modules of package and laboratory know which others, by imports at the top, in functions, for types."""

from __future__ import annotations

import grimp
import networkx as nx


def test_no_module_imports_what_imports_it() -> None:
    graph = grimp.build_graph("dacergnn", "benchmarks", cache_dir=None)
    imports = nx.DiGraph([(m, other) for m in graph.modules for other in graph.find_modules_directly_imported_by(m)])
    assert ("dacergnn.graph.profile", "dacergnn.graph.hetero_graph") in imports.edges
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == []
