"""How the builds of parity tests are compiled: faster than a user's, and where that is no loss, less optimized."""

from __future__ import annotations

import torch

from tests.frontends.cases import Case

AS_USERS_DO = ("pyg-rgcn-x-mean", "pyg-rgat-plain", "pyg-hgt-no_skip-heads")
"""Compiled with nothing but the default flags in float32."""


def flags(case: Case, dtype: torch.dtype) -> str:
    """Value for CXXFLAGS. In float64 formulas are checked, in float32 the vectorized kernels.

    Copies of loops for every combination of run-time conditions make up three quarters of a default build's time.
    """
    if dtype is torch.float64:
        return "-O1"
    return "" if case.name in AS_USERS_DO else "-fno-unswitch-loops"
