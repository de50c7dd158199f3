"""Keeps torch's Dynamo out of functions of ours."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Any)


def skipped_by_dynamo(function: _Function) -> _Function:
    """Returns a function of ours, marked so that Dynamo calls it as it is, with all that it calls, and traces nothing.

    Dynamo would trace our compiler otherwise; also within a backward that runs while it traces a forward.
    `torch.compiler.disable` does the same, but slows every call.
    """
    torch_c: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    frames = torch_c._dynamo.eval_frame
    if hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function
