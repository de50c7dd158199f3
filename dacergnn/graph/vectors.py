"""Holds index vectors by name, as tensors or as places in memory that C++ filled; only kernels read most of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from dacergnn.graph.lifetime import lasting


class Vectors:
    """Holds index vectors of one dtype; a vector that C++ has filled becomes a tensor at the first request for one.

    Args:
        held: Vectors that others hold, by name; they can be read as well.
    """

    def __init__(self, held: Mapping[str, Tensor]) -> None:
        self._held = held
        self._tensors: dict[str, Tensor] = {}
        self._places: dict[str, tuple[Tensor, int, int]] = {}
        """Memory, first index in it and number of indices, of vectors that nobody has requested as tensors."""
        self._addresses: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self._places

    def __iter__(self) -> Iterator[str]:
        yield from self._tensors
        yield from self._places

    def __getitem__(self, name: str) -> Tensor:
        place = self._places.get(name)
        if place is not None:  # another thread may do the same now
            memory, start, count = place
            with lasting():
                self._tensors.setdefault(name, memory[start : start + count])
            self._places.pop(name, None)
        return self._tensors[name]

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        self._tensors[name] = tensor

    def __delitem__(self, name: str) -> None:
        """Forgets a vector, whose address nobody may have."""
        self._tensors.pop(name, None)
        self._places.pop(name, None)

    def get(self, name: str) -> Tensor | None:
        """Returns a vector; None if there is none of this name."""
        try:
            return self[name]
        except KeyError:
            return self._held.get(name)

    def addresses(self, names: Sequence[str]) -> list[int] | None:
        """Returns the addresses of vectors; None unless all exist."""
        known = self._addresses
        try:
            return [known[name] if name in known else self._address(name) for name in names]
        except KeyError:
            return None

    def _address(self, name: str) -> int:
        place = self._places.get(name)
        if place is None:
            address = (self._tensors if name in self._tensors else self._held)[name].data_ptr()
        else:
            memory, start, _ = place
            address = memory.data_ptr() + start * memory.element_size()
        self._addresses[name] = address
        return address

    def place(self, name: str, memory: Tensor, start: int, count: int) -> None:
        """Notes that ``count`` indices in memory from ``start`` on are a vector."""
        self._places[name] = memory, start, count

    def share(self, name: str, other: str) -> None:
        """Notes that a vector equals another one, and shares its memory."""
        place = self._places.get(other)
        if place is None:
            self._tensors[name] = self._tensors[other]
        else:
            self._places[name] = place

    def tensors(self) -> dict[str, Tensor]:
        """Returns all vectors as tensors."""
        return {name: self[name] for name in [*self]}
