"""Measures whole training steps of whole networks: `python -m benchmarks networks`."""
