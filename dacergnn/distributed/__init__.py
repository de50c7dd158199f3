"""Full-graph training in several processes of `torch.distributed`, each of which has a part of the nodes."""

from dacergnn.distributed.graph import DistributedGraph
from dacergnn.distributed.partition import METHODS, partition

__all__ = ["METHODS", "DistributedGraph", "partition"]
