"""Measures here what the papers show, and puts the papers' numbers beside it: `python -m benchmarks papers`."""
