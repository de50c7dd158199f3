"""Runs the demonstration as `python -m dacergnn.demo`."""

from dacergnn.demo.command import demo

demo()
