"""Tracing of layers that are written in torch: recorded values become programs."""
