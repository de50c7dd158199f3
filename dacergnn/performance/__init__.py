"""Training of performance models: networks that learn how long compiled programs take.

The package imports `modules`, because its graph convolutions are compiled layers themselves. A search uses trained
networks by `dacergnn.tuning.predictor`, which does not import it.
"""

from dacergnn.performance.network import GraphNetwork
from dacergnn.performance.terms import TermNetwork
from dacergnn.performance.training import Trained, train
from dacergnn.performance.trees import Trees

__all__ = ["GraphNetwork", "TermNetwork", "Trained", "Trees", "train"]
