"""How the builds of parity tests are compiled: some as a user's, the others faster."""

from __future__ import annotations

from tests.frontends.cases import Case

AS_USERS_DO = ("pyg-rgcn-x-mean", "pyg-rgat-plain")
"""Compiled with nothing but the default flags in float32."""

NO_COPIES = "-fno-unswitch-loops"
"""As a user's, but for copies of loops for every combination of run-time conditions: three quarters of the time."""


def flags(case: Case, otherwise: str) -> str:
    """Value for CXXFLAGS."""
    return "" if case.name in AS_USERS_DO else otherwise
