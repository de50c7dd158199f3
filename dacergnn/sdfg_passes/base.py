"""Defines passes: rewrites of SDFGs whose options are the fields of an object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import dace

from dacergnn.sdfg_passes.context import Context


class Pass(ABC):
    """Rewrites an inter-operator SDFG; subclasses are frozen dataclasses, which print their options."""

    name: ClassVar[str]
    """Selects the pass (`config.PASSES`), and begins the names of its questions."""

    @abstractmethod
    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        """Rewrites ``sdfg`` in place; returns how often the pass fired, and 0 only if the program is unchanged."""
