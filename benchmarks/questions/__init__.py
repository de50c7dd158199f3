"""Answers single questions, each by a script: `python -m benchmarks NAME`."""
