"""Checks the inputs of calls once for each set of shapes, and writes their addresses into the arguments."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from math import prod

import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.spaces import FEATURE_SPACES
from dacergnn.native.exchange import DESCRIBE
from dacergnn.runtime.lower import Lowered
from dacergnn.runtime.stacks import Stack, Stacks


class Fit:
    """Describes inputs that fit, as numbers for C++.

    Args:
        expected: The numbers for `read_tensors`.
        pieces: The numbers for `stack_parts`.
    """

    __slots__ = ("expected", "expected_address", "pieces", "pieces_address")

    def __init__(self, expected: array[int], pieces: array[int]) -> None:
        self.expected, self.pieces = expected, pieces
        self.expected_address, self.pieces_address = expected.buffer_info()[0], pieces.buffer_info()[0]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Returns the shapes of the tensors."""
        shapes: list[tuple[int, ...]] = []
        at = _HEAD
        while at < len(self.expected):
            first, at = at + 2, at + 2 + self.expected[at + 1]
            shapes.append(tuple(self.expected[first:at]))
        return shapes


_HEAD = 3
"""The number of numbers that `read_tensors` reads before those of the first tensor."""
_NO_PIECES = array("q", [0])


class InputForms:
    """Describes the inputs of a program on any graph.

    Args:
        positions: Positions of arguments, by name.
        stacks: Arrays that come in parts, None for none.
        given: Names of arrays that come otherwise.
    """

    def __init__(
        self,
        lowered: Lowered,
        dtype: torch.dtype,
        positions: Mapping[str, int],
        stacks: Stacks | None,
        given: Collection[str] = (),
    ) -> None:
        self.dtype = dtype
        self.stacks = stacks
        others = {*given, *(stacks.names if stacks is not None else ())}
        self.names = [n for n in lowered.inputs if n not in others]
        """Arrays that come as one tensor."""
        self.positions = [positions[n] for n in self.names]
        first = len(lowered.signature) + 3  # after the handle, the arguments and the rest of the tail
        self.positions += range(first, first + (stacks.count if stacks is not None else 0))
        self.spaces = lowered.spaces
        """Row space and row shape of each array."""
        # Single rows may come without a row axis, and rows of pairs with two axes.
        several = ("ONE", "RNS", *FEATURE_SPACES)
        self.whole = [
            (n, space, row, prod(row), space not in several) for n in self.names for space, row in (lowered.spaces[n],)
        ]
        """Arrays in one tensor: name, row space, row shape and its size, whether rows are the first axis."""
        self._last: tuple[array[int], list[tuple[int, str]]] | None = None
        """Numbers that describe the last inputs, and the positions in them of sizes of row spaces."""

    def keep(self, expected: array[int], tensors: Sequence[Tensor]) -> None:
        """Notes the description of inputs, for calls on other graphs."""
        places: list[tuple[int, str]] = []
        at = _HEAD
        for (_, space, _, _, rows_first), tensor in zip(self.whole, tensors, strict=True):
            if rows_first and tensor.dim():
                places.append((at + 2, space))
            elif space != "ONE":
                return  # its shape has several sizes
            at += 2 + tensor.dim()
        self._last = expected, places

    def fit(self, sizes: Mapping[str, int]) -> Fit | None:
        """Returns the last inputs' description with the sizes of another graph; None if no inputs are known."""
        if self._last is None:
            return None
        expected, places = self._last
        expected = expected[:]
        for place, space in places:
            expected[place] = sizes[space]
        return Fit(expected, _NO_PIECES)


class Inputs:
    """Checks and places the inputs of a program on one graph.

    Args:
        sizes: Number of rows by row space.
        offsets: Offsets in the workspace of arrays that come in parts, in bytes.
    """

    def __init__(
        self, forms: InputForms, device: torch.device, sizes: Mapping[str, int], offsets: Mapping[str, int]
    ) -> None:
        self.forms = forms
        self.dtype, self.stacks = forms.dtype, forms.stacks
        self.names, self.positions = forms.names, forms.positions
        self.device = device
        self.fit = forms.fit(sizes)
        self._sizes = sizes
        self._offsets = offsets

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an array."""
        space, row = self.forms.spaces[name]
        return (self._sizes[space], *row)

    def place(self, tensors: Sequence[Tensor], arguments: array[int]) -> tuple[list[Tensor], Fit]:
        """Writes addresses of the tensors, or of contiguous copies; returns the tensors to keep meanwhile, and the fit.

        Raises:
            ArrayError: A tensor does not fit the graph and the program.
        """
        tensors = [t if t.is_contiguous() else t.contiguous() for t in tensors]
        fit = self.fit
        if fit is None or [t.shape for t in tensors] != fit.shapes or not self._of_known_kind(tensors):
            fit = self.fit = self.check(tensors)
        for position, tensor in zip(self.positions, tensors, strict=True):
            arguments[position] = tensor.data_ptr()
            if arguments[position] == 0 and tensor.numel() > 0:
                raise ArrayError("an array", f"is a {type(tensor).__name__} without memory; pass one that has some")
        return tensors, fit

    def _of_known_kind(self, tensors: Sequence[Tensor]) -> bool:
        return all(t.dtype is self.dtype and t.device == self.device for t in tensors)

    def check(self, tensors: Sequence[Tensor]) -> Fit:
        """Returns the fit of the tensors; raises ArrayError with the name of the array if one does not fit."""
        whole, parts = tensors[: len(self.names)], tensors[len(self.names) :]
        for (name, space, row, width, rows_first), tensor in zip(self.forms.whole, whole, strict=True):
            rows, shape = self._sizes[space], tensor.shape
            self._check_kind(name, tensor)
            rows_differ = rows_first and len(shape) > 0 and shape[0] != rows
            if rows_differ or tensor.numel() != rows * width:
                asked = (rows, *row)
                raise ArrayError(name, f"has shape {tuple(shape)}, but the graph and the layer ask for {asked}")
        pieces, number = list[int](), count()
        for stack, own in self.stacks.split(parts) if self.stacks is not None else []:
            pieces += self._pieces(stack, own, number)
        expected = array("q", [DESCRIBE or 0, len(tensors), 8 * self.dtype.itemsize])
        for position, tensor in zip(self.positions, tensors, strict=True):
            expected.extend([position, tensor.dim(), *tensor.shape])
        if self.stacks is None:
            self.forms.keep(expected, tensors)
        return Fit(expected, array("q", [len(pieces) // 4, *pieces]))

    def _pieces(self, stack: Stack, parts: Sequence[Tensor], number: count[int]) -> list[int]:
        """Returns the fields of `Piece` for each piece of the parts."""
        label, shape = ", ".join(stack.names), self.shape(stack.names[0])
        row = prod(shape[1:])
        pieces: list[int] = []
        start = 0
        for i, part in enumerate(parts):
            name, part_shape = f"part {i} of {label}", tuple(part.shape)
            self._check_kind(name, part)
            rows = 1 if stack.typed else part_shape[0] if part_shape else 0
            if part.numel() != rows * row * len(stack.names):
                asked = f"{row * len(stack.names)} numbers" + ("" if stack.typed else " in a row")
                raise ArrayError(name, f"has shape {part_shape}, but the graph and the layer ask for {asked}")
            at, size = next(number), rows * row * self.dtype.itemsize
            for share, array_name in enumerate(stack.names):
                to = self._offsets[array_name] + start * row * self.dtype.itemsize
                pieces += [at, share * size, to, size]
            start += rows
        if start != shape[0]:
            raise ArrayError(label, f"has {start} rows in {len(parts)} parts, but the graph asks for {shape[0]}")
        return pieces

    def _check_kind(self, name: str, tensor: Tensor) -> None:
        if tensor.dtype != self.dtype:
            problem = f"has dtype {tensor.dtype}, but the layer was compiled for {self.dtype}; use .to({self.dtype})"
            raise ArrayError(name, problem)
        if tensor.device != self.device:
            remedy = ".cpu()" if self.device.type == "cpu" else f".to({str(self.device)!r})"
            raise ArrayError(name, f"is on {tensor.device}, but the graph is on {self.device}; move it with {remedy}")


def check_inputs(
    lowered: Lowered, dtype: torch.dtype, graph: HeteroGraph, stacks: Stacks | None, tensors: Sequence[Tensor]
) -> None:
    """Raises ArrayError if tensors do not fit a graph and a program, which need not be built."""
    forms = InputForms(lowered, dtype, dict.fromkeys(lowered.signature, 0), stacks)
    sizes = graph.sizes_of([space for space, _ in lowered.spaces.values()])
    offsets = dict.fromkeys(() if stacks is None else stacks.names, 0)
    Inputs(forms, graph.device, sizes, offsets).check(tensors)
