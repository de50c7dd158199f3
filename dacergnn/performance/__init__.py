"""Training of performance models: networks that learn how long compiled programs take.

It stands above `modules`, as its graph convolutions are compiled layers themselves; what a search needs to use a
trained one is `dacergnn.tuning.predictor`.
"""

from dacergnn.performance.network import GraphNetwork
from dacergnn.performance.terms import TermNetwork
from dacergnn.performance.training import Trained, train
from dacergnn.performance.trees import Trees

__all__ = ["GraphNetwork", "TermNetwork", "Trained", "Trees", "train"]
