"""Handles children of `os.fork`, which lack their parents' threads and would wait for these forever."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache

import torch

log = logging.getLogger("dacergnn.modules")


def in_children(work: Callable[[], None]) -> None:
    """Does some work in every child of `os.fork`, which Windows does not have."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


@cache
def use_one_thread_in_children() -> None:
    """Lets children of this process run on one thread; called when the first kernels are loaded.

    OpenMP keeps the threads of torch and of kernels between parallel regions. In a child it would wait for threads
    that only the parent has.
    """
    in_children(_use_one_thread)


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        log.warning("process %d was forked by one that has run kernels, and runs on one thread", os.getpid())
