"""Shows what passes made of a program: on a page of pictures for any browser, and in files for viewers of DaCe."""

from dacergnn.viewer.extension import write_sdfg
from dacergnn.viewer.page import page

__all__ = ["page", "write_sdfg"]
