"""Measures for us: the papers' figures, the suites, other libraries, and what cost models learn from.

No part of the package `dacergnn`, which it imports. `python -m benchmarks` lists its commands.
"""
