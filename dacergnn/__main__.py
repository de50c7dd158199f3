"""Runs the console script as `python -m dacergnn`."""

from dacergnn.cli import main

main()
