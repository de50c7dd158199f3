"""Imports DaCe without the viewer, 7 MB of HTML, that it writes into the cell of a notebook that imports it first.

To see SDFGs in a notebook, call `dace.jupyter.enable()`, or import dace before dacergnn.
"""

from __future__ import annotations

import sys

if "IPython" in sys.modules:
    from IPython.utils.capture import capture_output

    with capture_output(stdout=False, stderr=False):
        import dace as dace
