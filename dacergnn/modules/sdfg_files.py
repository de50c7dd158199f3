"""Writes the folder of SDFGs for `save_sdfg`, reads it for `load_sdfg`, and checks that they fit their program.

Beside the SDFGs there is a page with a picture of every step, and a record. The record names the program that they
belong to, its arrays, the files that run (those of the last step), and a checksum of each file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import dace

from dacergnn.errors import DacergnnError, ProgramError, VerificationError
from dacergnn.library_nodes.form import GRADIENT
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, verify
from dacergnn.program.rebuild import check_bodies, rebuild
from dacergnn.runtime.plan_cache import compiler_version
from dacergnn.sdfg_passes import Compilation
from dacergnn.viewer import page, write_sdfg

RECORD, PAGE = "saved.json", "steps.html"
FORWARD, BACKWARD = "forward", "backward"
_Rows = dict[str, list[Any]]
"""Row space, then row shape, by name of an array."""


@dataclass(frozen=True)
class Part:
    """Describes a program that runs: the file that holds it, its name and its arrays."""

    file: str
    name: str
    inputs: _Rows
    outputs: _Rows

    @classmethod
    def of(cls, file: str, sdfg: dace.SDFG) -> Part:
        """Returns the description of the program in a file."""
        view = Program(sdfg)
        return cls(file, sdfg.name, _rows(view, view.inputs), _rows(view, view.outputs))


@dataclass(frozen=True)
class Record:
    """Describes the SDFGs of one build of a program.

    Args:
        version: The version of the compiler.
        program: Key of the program that the SDFGs belong to.
        gradients: Inputs that gradients were asked for.
        wrt: Inputs that the outputs of the backward belong to.
        results: The number of outputs of the forward that are results; the others are saved for the backward.
        parts: The programs that run, by role.
        files: Checksums of all files, by name.
    """

    version: str
    program: str
    gradients: list[str]
    wrt: list[str]
    results: int
    parts: dict[str, Part]
    files: dict[str, str]

    def check_files(self, folder: Path) -> None:
        """Raises VerificationError if a file that runs is missing, or one that does not run is changed or new."""
        running = [part.file for part in self.parts.values()]
        for path in sorted(folder.glob("[0-9][0-9]_*.sdfg")):
            if path.name not in self.files:
                raise VerificationError(
                    f"{path}: the file is none that was saved last; remove it, and change what runs: "
                    f"{', '.join(running)}."
                )
        for name, before in self.files.items():
            path = folder / name
            if name in running and not path.is_file():
                raise VerificationError(f"{path}: the file is missing; save the SDFGs again, and change them.")
            if name not in running and path.is_file() and _checksum(path) != before:
                raise VerificationError(
                    f"{path}: the file has been changed, but it shows a step on the way; change what runs: "
                    f"{', '.join(running)}."
                )

    def read(self, folder: Path, role: str, dtype: Typeclass) -> dace.SDFG:
        """Returns the program of a role, without encodings; raises VerificationError if form or arrays are wrong."""
        part = self.parts[role]
        with about(folder / part.file):
            sdfg = _read(folder / part.file)
            if sdfg.name != part.name:
                raise ProgramError(f'the SDFG is called "{sdfg.name}", and the one of this program "{part.name}".')
            check_bodies(sdfg)
            verify(sdfg)
            sdfg = rebuild(sdfg, dtype)
            verify(sdfg)
            view = Program(sdfg)
            if role == FORWARD:
                _check_arrays("inputs", _rows(view, view.inputs), part.inputs)
            fixed = self.results if role == FORWARD else None
            names = [*part.outputs][:fixed]
            known = {name: part.outputs[name] for name in names}
            _check_arrays("outputs", _rows(view, view.outputs[:fixed]), known)
        return sdfg

    def check_pair(self, folder: Path, forward: dace.SDFG, backward: dace.SDFG) -> None:
        """Raises VerificationError if the backward reads what neither the layer takes nor the forward returns."""
        ahead, behind = Program(forward), Program(backward)
        outputs = _rows(ahead, ahead.outputs)
        results = [*outputs][: self.results]
        available = {**_rows(ahead, ahead.inputs), **outputs, **{GRADIENT + name: outputs[name] for name in results}}
        path, other = (folder / self.parts[role].file for role in (BACKWARD, FORWARD))
        for name, rows in _rows(behind, behind.inputs).items():
            if name not in available:
                raise VerificationError(
                    f'{path}: it reads "{name}", which the layer does not take and {other} does not return; make it an '
                    "output there."
                )
            if available[name] != rows:
                raise VerificationError(f'{path}: "{name}" has {_said(rows)}, but {_said(available[name])} in {other}.')


def write(
    folder: Path, program: str, compilation: Compilation, gradients: list[str], results: int, sizes: Mapping[str, int]
) -> list[Path]:
    """Writes SDFGs, ``NN_step[_backward].sdfg``, their page and their record; returns the SDFGs' paths.

    An SDFG that a step did not change has no file, except for those of the last step. ``sizes`` are the rows of the row
    spaces of the graph, if it is known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unchanged(folder)
    written: list[Path] = []
    parts: dict[str, Part] = {}
    names: dict[tuple[int, str], str] = {}
    steps = compilation.steps
    for number, step in enumerate(steps):
        before = steps[number - 1].sdfgs if 0 < number < len(steps) - 1 else {}
        for role, sdfg in step.sdfgs.items():
            if sdfg is before.get(role):
                continue
            path = folder / f"{number:02d}_{step.name}{'' if role == FORWARD else '_' + role}.sdfg"
            write_sdfg(sdfg, path)
            written.append(path)
            names[number, role] = path.name
            parts[role] = Part.of(path.name, sdfg)
    (folder / PAGE).write_text(page(steps, sizes, names, parts[FORWARD].name), encoding="utf-8")
    files = {path.name: _checksum(path) for path in written}
    record = Record(compiler_version(), program, gradients, compilation.wrt, results, parts, files)
    (folder / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n")
    return written


def _remove_unchanged(folder: Path) -> None:
    """Removes the files that were written before and have not been changed since."""
    try:
        files = json.loads((folder / RECORD).read_text())["files"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return  # without a record, no file is known to be ours
    for name, before in files:
        path = folder / Path(name).name
        if path.is_file() and _checksum(path) == before:
            path.unlink()


def read_record(folder: Path) -> Record:
    """Returns the record that `write` wrote to a folder with this version; raises VerificationError without one."""
    path = folder / RECORD
    try:
        fields = json.loads(path.read_text())
        parts = {role: Part(**part) for role, part in fields.pop("parts").items()}
        record = Record(**fields, parts={FORWARD: parts.pop(FORWARD), **parts})
    except OSError as error:
        problem = f"it cannot be read ({error.strerror}); name a folder that save_sdfg wrote"
    except (ValueError, TypeError, KeyError, AttributeError):
        problem = "it is not what save_sdfg wrote; save the SDFGs again, and change them"
    else:
        if record.version == compiler_version():
            return record
        problem = "the SDFGs were saved by another version of dacergnn or DaCe; save them again, and change them"
    raise VerificationError(f"{path}: {problem}.")


@contextmanager
def about(path: Path) -> Generator[None]:
    """Turns errors of any kind into ones that name the file, since anything may be in it."""
    try:
        yield
    except DacergnnError as error:
        raise VerificationError(f"{path}: {error}") from error
    except Exception as error:
        problem = f"it is no program of dacergnn: {type(error).__name__}: {error}"
        raise VerificationError(f"{path}: {problem}; save the SDFGs again, and change them.") from error


def _read(path: Path) -> dace.SDFG:
    """Returns the SDFG in a file; raises where DaCe would warn and drop something, except for notes of the viewer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", r"Unused properties: (layout|position)(, position)?$")
        return dace.SDFG.from_file(str(path))


def _rows(view: Program, names: list[str]) -> _Rows:
    return {name: [view.space(name), *view.shape(name)] for name in names}


def _check_arrays(kind: str, arrays: _Rows, known: _Rows) -> None:
    """Raises ProgramError unless the arrays are the known ones, in the same order."""
    if [*arrays] != [*known]:
        actual, wanted = (", ".join(names) or "none" for names in (arrays, known))
        raise ProgramError(f"the {kind} are {actual}, and those of the layer's program {wanted}; keep names and order.")
    for name, rows in known.items():
        if arrays[name] != rows:
            raise ProgramError(
                f'"{name}" has {_said(arrays[name])}, but {_said(rows)} in the layer\'s program; keep them.'
            )


def _said(rows: list[Any]) -> str:
    space, *shape = rows
    return f"rows {space} of shape {tuple(shape)}"


def _checksum(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
