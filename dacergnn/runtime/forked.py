"""Children of `os.fork`: they have none of their parents' threads, and whatever waits for one waits forever."""

from __future__ import annotations

import logging
import os
from functools import cache

import torch

log = logging.getLogger("dacergnn.modules")


@cache
def use_one_thread_in_children() -> None:
    """Let children of this process run on one thread; called where the first kernels are loaded.

    OpenMP keeps its threads between parallel regions, those of torch and of kernels alike, and would wait in a child
    for threads that only the parent has.
    """
    os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        log.warning("process %d was forked by one that has run kernels, and runs on one thread", os.getpid())
