"""The options of torch's Dynamo while it captures for us."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import torch

from dacergnn.modules.torch_operator import INLINED

MOST_GRAPHS = 64
"""Limits how many graphs torch keeps of a forward."""


class _Options(threading.local):
    """Has torch go on where sizes depend on numbers, see hooks that come later, and raise beyond `MOST_GRAPHS`.

    Where a number is read, torch goes on as well, unless it ``divides`` forwards there. NumPy's random numbers are
    NumPy's. Beyond its usual limit of eight graphs torch would run the forward as it is, and say nothing. Modes, and
    sizes of zero and one, have graphs of their own. Floating-point attributes are constants, since each of them would
    take longer to hand over than to compare. Each thread has one context for all calls, since it takes longer to make
    than to enter.
    """

    _context: Any = None
    _warnings: Any = None
    _depth = 0

    def __init__(self, *, divides: bool) -> None:
        self._divides = divides
        self._logger = logging.getLogger("torch._dynamo.variables.tensor")
        self._level = 0

    def __enter__(self) -> None:
        if self._context is None:
            options: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
            self._context = options.patch(
                record_runtime_overhead=False,
                capture_dynamic_output_shape_ops=True,
                capture_scalar_outputs=not self._divides,
                use_numpy_random_stream=True,
                skip_nnmodule_hook_guards=False,
                specialize_float=True,
                recompile_limit=MOST_GRAPHS,
                fail_on_recompile_limit_hit=True,
            )
        if not self._depth:
            self._context.__enter__()
            INLINED.__enter__()
            self._warnings = warnings.catch_warnings()
            self._warnings.__enter__()
            # torch looks at the gradients of all tensors that it meets, and warns of what it does not capture
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            warnings.filterwarnings("ignore", module=r"torch\._dynamo")
            self._level = self._logger.level
            self._logger.setLevel(logging.ERROR)
        self._depth += 1

    def __exit__(self, *problem: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._logger.setLevel(self._level)
            self._warnings.__exit__()
            INLINED.__exit__(*problem)
            self._context.__exit__(*problem)


CAPTURE_OPTIONS = _Options(divides=False)
DIVIDING_OPTIONS = _Options(divides=True)
"""Options for forwards that read numbers of what they compute, which torch divides there."""
