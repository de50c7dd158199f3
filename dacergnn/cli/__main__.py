"""Runs the console script as `python -m dacergnn.cli`."""

from dacergnn.cli import main

main()
