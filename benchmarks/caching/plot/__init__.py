"""Draws the figures of the suite of caching strategies: `python -m benchmarks plot FILE`."""
