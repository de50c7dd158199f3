"""Programs whose SDFGs a user has changed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import dace
import torch

from dacergnn.errors import DacergnnError, ProgramError
from dacergnn.library_nodes import Traversal
from dacergnn.modules.building import building
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.elements import ELEMENTS
from dacergnn.modules.programs import ways_of
from dacergnn.modules.sdfg_files import BACKWARD, FORWARD, Record, about
from dacergnn.modules.variant import Mask, Variant
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Compilation, Context, PassStep, SelectAdjacency
from dacergnn.sdfg_passes.questions import Questions
from dacergnn.target import find


class LoadedProgram(CompiledProgram):
    """Runs SDFGs of a folder in place of those that the passes make; belongs to one layer, and to no cache of plans.

    The user decides what the SDFGs compute. Hence no derivative of them is known, except for the backward in the same
    folder.

    Args:
        original: The program that this one replaces.
        folder: Holds the files that `CompiledProgram.save` wrote for it, with changes.
        record: The record of the folder.

    Raises:
        VerificationError: A file is missing, broken, or does not fit the layer.
    """

    def __init__(self, original: CompiledProgram, folder: Path, record: Record) -> None:
        super().__init__(
            original.program, original.dtype, original.index, replace(original.config, tune="off"), original.profile,
            frozenset(original.sparse), compile_other=original.compile_other,
        )  # fmt: skip
        self.original = original.original if isinstance(original, LoadedProgram) else original
        self.folder = folder
        self._asked_for = frozenset(record.gradients)
        with building():
            compilation = self._read(record)
            with about(folder):
                self._pair = self._made(compilation)
        mask = tuple([name in self._asked_for for name in self._taken])
        self._variants[mask] = self._pair
        self.ways = ways_of(self)

    def _read(self, record: Record) -> Compilation:
        record.check_files(self.folder)
        parts = {role: record.read(self.folder, role, ELEMENTS[self.dtype]) for role in record.parts}
        if BACKWARD in parts:
            record.check_pair(self.folder, parts[FORWARD], parts[BACKWARD])
        for role, sdfg in parts.items():
            with about(self.folder / record.parts[role].file):
                self._connect(sdfg)
        saved = Program(parts[FORWARD]).outputs[record.results :]
        made = Compilation(parts[FORWARD], parts.get(BACKWARD), saved, record.wrt)
        made.steps.append(PassStep("loaded", parts, {}, 0.0))
        return made

    def _connect(self, sdfg: dace.SDFG) -> None:
        """Connects the encodings that the formats of the nodes need."""
        target = find(self.config.implementation)
        operators: list[Any] = Program(sdfg).operators
        for operator in operators:
            if operator.implementation != target.name:
                raise ProgramError(
                    f'implementation of {operator.name} is "{operator.implementation}", and that of the layer '
                    f'"{target.name}"; optimize with Config(implementation=...) for another.'
                )
        traversals: list[Any] = [o for o in operators if isinstance(o, Traversal)]
        formats = [(o, o.adjacency) for o in traversals]
        wanted = Questions(Plan.of({o.statements[0].target.name: form for o, form in formats}))
        try:
            context = Context(self.profile, implementation=target.name, questions=wanted)
            SelectAdjacency(index=self.index_type).run(sdfg, context)
        except DacergnnError as error:
            raise ProgramError(f"adjacency: {str(error).removeprefix('plan: ')}") from error
        for operator, form in formats:
            if form not in target.adjacencies or operator.adjacency != form:
                raise ProgramError(f'adjacency of {operator.name} is "{form}", which does not fit; set it to "csr".')
        for operator in operators:
            operator.validate(sdfg, Program(sdfg).state)

    def variant(self, mask: Mask) -> Variant:
        asked = [name for name, needed in zip(self._taken, mask, strict=True) if needed]
        missing = [name for name in asked if name not in self._asked_for]
        if missing:
            self._refuse(
                f'have no gradient of "{missing[0]}", which this call asks for; save, change and load those of such a '
                "call"
            )
        return self._pair

    def has(self, mask: Mask) -> bool:
        return True  # the only build serves all calls, or refuses them

    def inference(self) -> Executable:
        return self._pair.forward

    def gradients(self, mask: Mask) -> NoReturn:
        self._refuse("have first derivatives only, by one backward; use no create_graph, forward mode or torch.func")

    def of_index(self, index: torch.dtype) -> NoReturn:
        self._refuse(f"are for indices of {self.index}, and this call has features with too many nonzeros for that")

    def refuse_others(self) -> NoReturn:
        """Raises DacergnnError about a call that would need another compiled program."""
        kind = f"elements of {self.dtype}, indices of {self.index}"
        self._refuse(f"are for {kind} and graphs of one kind; make such calls, as when they were saved")

    def _refuse(self, problem: str) -> NoReturn:
        raise DacergnnError(f"{self.folder}: the SDFGs that were loaded {problem}. unload_sdfg() undoes it.")

    def __deepcopy__(self, memo: object) -> LoadedProgram:
        return self  # it never changes

    def __reduce__(self) -> NoReturn:
        raise DacergnnError(
            f"{self.folder}: a layer with SDFGs that were loaded cannot be pickled; call unload_sdfg() before, and "
            "load_sdfg(...) on the layer that comes of it."
        )
