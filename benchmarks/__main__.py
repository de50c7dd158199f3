"""Runs the laboratory: `python -m benchmarks`."""

from benchmarks.commands import main

main(prog_name="python -m benchmarks")
