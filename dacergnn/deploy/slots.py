"""Gives arrays places in the memory of a call; arrays that are not needed at the same time share one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping


class Slots:
    """Hands out numbered buffers, each of which grows to the largest array that it ever holds."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[tuple[int, Hashable]] = []

    def take(self, size: Hashable) -> int:
        """Returns a buffer; one that has held an array of the same size is best."""
        place = next((i for i, (_, held) in enumerate(self._free) if held == size), len(self._free) - 1)
        if place >= 0:
            return self._free.pop(place)[0]
        self.count += 1
        return self.count - 1

    def give(self, slot: int, size: Hashable) -> None:
        """Takes a buffer back."""
        self._free.append((slot, size))


def shared_places(lifetimes: Mapping[str, tuple[Hashable, int, int]]) -> dict[str, int]:
    """Returns a number for each name; names of equal size that do not live at the same time share one.

    Args:
        lifetimes: Size, first step and last step of each name.
    """
    places: dict[str, int] = {}
    taken: list[tuple[Hashable, int]] = []  # size, and last step of the name that has the place
    for name, (size, first, last) in sorted(lifetimes.items(), key=lambda item: (item[1][1], item[0])):
        place = next((i for i, (held, end) in enumerate(taken) if held == size and end < first), None)
        if place is None:
            place = len(taken)
            taken.append((size, last))
        else:
            taken[place] = size, last
        places[name] = place
    return places
