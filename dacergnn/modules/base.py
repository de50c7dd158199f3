"""What everything that runs compiled programs offers besides its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram


class RunsPrograms:
    """Remembers the last program that ran, for reports."""

    kind: str
    """Name of the layer that is computed."""

    @property
    def last_call(self) -> tuple[CompiledProgram, HeteroGraph] | None:
        """The compiled program and the graph of the last call."""
        return self.__dict__.get("_last")

    def remember(self, compiled: CompiledProgram, graph: HeteroGraph) -> None:
        """Note what a call runs."""
        self.__dict__["_last"] = (compiled, graph)

    def save_sdfg(self, folder: str | Path) -> list[Path]:
        """Write the SDFGs of every step of the last call's program: ``00_frontend.sdfg``, ...; returns their paths.

        Raises:
            UnsupportedCallError: The module has not been called yet.
        """
        if self.last_call is None:
            raise UnsupportedCallError(f"save_sdfg: this {self.kind} has not been called yet; call it once before.")
        return self.last_call[0].save(Path(folder))


class ProgramModule(RunsPrograms, nn.Module):
    """A module of this package whose calls run compiled programs."""

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return type(self).__name__

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
