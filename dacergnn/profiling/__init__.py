"""Measures the compiled operators of a model's call one by one: `profile(model, *args)`."""

from dacergnn.profiling.measure import profile
from dacergnn.profiling.operator_time import OperatorTime
from dacergnn.profiling.result import OperatorProfile

__all__ = ["OperatorProfile", "OperatorTime", "profile"]
