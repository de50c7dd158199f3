"""`python -m dacergnn.cli`: the same as the console script."""

from dacergnn.cli import main

main()
