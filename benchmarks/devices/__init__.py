"""Benchmarks layers on a CUDA device: `python -m benchmarks devices`."""
