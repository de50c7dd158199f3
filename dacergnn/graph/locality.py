"""Orders nodes so that neighbours have near numbers."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.graph.hetero_graph import HeteroGraph


def locality_order(graph: HeteroGraph) -> Tensor:
    """Returns [N] int64, the nodes type after type, with neighbours near each other within each type.

    The order is the reverse one of Cuthill and McKee. In a graph that is numbered so, successive destinations read
    fewer different sources: ranges and processes copy less.

    Args:
        graph: A graph whose destinations are its sources.

    Raises:
        ArrayError: The graph has other destinations than sources.
    """
    if graph.bipartite or graph.size("NS") != graph.size("ND"):
        raise ArrayError("graph", "has other destinations than sources; give the graph of all nodes")
    nodes = graph.size("NS")
    if nodes == 0:
        return torch.empty(0, dtype=torch.int64)
    ends = [graph.index("E", path).cpu().numpy() for path in ("dst", "src")]
    neighbours = csr_array((np.ones(len(ends[0]), np.bool_), (ends[0], ends[1])), (nodes, nodes))
    found = reverse_cuthill_mckee((neighbours + neighbours.T).tocsr(), symmetric_mode=True)
    order = torch.from_numpy(found.astype(np.int64))
    return order[graph.index("NS", "ntype").cpu()[order].sort(stable=True).indices]
