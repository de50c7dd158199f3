"""Runs the laboratory: `python -m benchmarks`."""

import signal
import sys

from benchmarks.commands import main

# A command that is told to end ends the processes that it has started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
main(prog_name="python -m benchmarks")
