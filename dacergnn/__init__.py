"""dacergnn: a data-centric compiler for relational graph neural networks.

`optimize` replaces the relational layers of a model by compiled ones, `revert` puts the originals back,
`explain` says what happened, `profile` what each operator costs. `compile` makes a layer of a function in program
form, `warmup` compiles ahead of the first call.
Every refusal raises a `DacergnnError`, of a kind that `dacergnn.errors` describes.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dacergnn import _dace as _dace  # before all that import dace
from dacergnn._version import VERSION
from dacergnn.logs import configure_logs


def _is_command() -> bool:
    """Tells whether this process is the command `dacergnn`, or `python -m dacergnn`."""
    started = sys.orig_argv[-len(sys.argv) :]  # the script or the module, and its arguments
    return bool(started) and Path(started[0]).stem == "dacergnn"


configure_logs()
__version__ = VERSION
if TYPE_CHECKING or not _is_command():
    from dacergnn._interface import *  # noqa: F403
    from dacergnn._interface import __all__ as __all__
else:  # so that `dacergnn --help` answers at once
    from importlib import import_module
    from importlib.util import find_spec

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = f"{__name__}.{name}"
        if find_spec(module) is not None:
            return import_module(module)
        return getattr(import_module("dacergnn._interface"), name)
