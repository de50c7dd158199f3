"""Errors for what forwards over DGL graphs ask for that cannot be captured."""

from __future__ import annotations

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.callers import caller_text


def unsupported(what: str) -> UnsupportedCallError:
    """Returns the error for something that a stand-in cannot do; it names the user's line."""
    return UnsupportedCallError(f"{what} cannot be captured ({caller_text()}).")


# As `torch.compiler.disable` does: torch ends a capture here, and runs the line again, which raises the error.
unsupported.__dict__["_torchdynamo_disable"] = True
