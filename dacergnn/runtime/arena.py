"""Divides one large buffer among the calls that follow one another, so that they need no more than the largest."""

from __future__ import annotations

from torch import Tensor

from dacergnn.runtime.memory import aligned


class Arena:
    """Hands out parts of a buffer, each in the first gap that is large enough.

    One thread takes parts. Any thread may give them back, at any time, since the garbage collector does.

    Args:
        buffer: [size] bytes.
    """

    def __init__(self, buffer: Tensor) -> None:
        self._buffer = buffer
        self._taken: dict[int, int] = {}  # ends by starts, ascending
        self._back: list[int] = []  # starts of parts that are back, which only `take` removes
        self._ended: list[Tensor] = []  # the buffer, once nobody takes parts any more

    def take(self, size: int) -> Tensor | None:
        """Returns a part of ``size`` bytes with any content; None if no gap is large enough."""
        while self._back:
            del self._taken[self._back.pop()]
        start = 0
        for first, end in self._taken.items():
            if first - start >= size:
                break
            start = end
        if start + size > self._buffer.nbytes:
            return None
        self._taken = dict(sorted({**self._taken, start: aligned(start + size)}.items()))
        return self._buffer[start : start + size]

    def give(self, part: Tensor) -> None:
        """Takes a part back."""
        self._back.append(part.data_ptr() - self._buffer.data_ptr())

    def end(self) -> None:
        """Notes that nobody takes parts any more."""
        self._ended.append(self._buffer)

    def released(self) -> list[Tensor]:
        """Returns the buffer after `end`, when all parts are back; only once, whoever asks at the same time."""
        if len(self._back) < len(self._taken):
            return []
        try:
            return [self._ended.pop()]
        except IndexError:
            return []
