"""Divides one large buffer among the calls that follow one another, so that they need no more than the largest."""

from __future__ import annotations

from torch import Tensor

from dacergnn.runtime.memory import aligned


class Arena:
    """Hands out parts of a buffer, each in the first gap that is large enough.

    Args:
        buffer: [size] bytes.
    """

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self._held = [buffer]
        self._taken: dict[int, int] = {}  # ends by starts, ascending
        self._back: list[
            int
        ] = []  # starts of parts that are back: garbage may be collected while `take` looks for a gap

    def released(self) -> list[Tensor]:
        """Returns the buffer once all parts are back, and only once, whoever asks meanwhile."""
        try:
            return [self._held.pop()] if len(self._back) == len(self._taken) else []
        except IndexError:
            return []

    def take(self, size: int) -> Tensor | None:
        """Returns a part of ``size`` bytes with any content; None if no gap is large enough."""
        while self._back:
            del self._taken[self._back.pop()]
        start = 0
        for first, end in self._taken.items():
            if first - start >= size:
                break
            start = end
        if start + size > self.buffer.numel():
            return None
        self._taken = dict(sorted({**self._taken, start: aligned(start + size)}.items()))
        return self.buffer[start : start + size]

    def give(self, part: Tensor) -> None:
        """Takes a part back."""
        self._back.append(part.data_ptr() - self.buffer.data_ptr())
