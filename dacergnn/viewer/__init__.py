"""Shows what passes made of a program, step by step, on one page of pictures that opens in any browser."""

from dacergnn.viewer.page import page

__all__ = ["page"]
