"""Repeats a recorded call for other calls that are like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.sizes import Size
from dacergnn.frontends.symbolic.steps import Extent
from dacergnn.frontends.symbolic.tape import Tape, Unrepeatable
from dacergnn.modules.network import Network, Programs
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import SIMPLE, CallSignature


class Recording:
    """Describes the steps of a call, so that other calls that are like it can run them.

    Args:
        signature: The signature of the call.
        watch: The objects that it can reach besides its arguments.
        leaves: The tensors and graphs among its arguments.
        tape: The steps that it ran.
        result: The result that it returned.
        forget: Is called when a graph is gone.

    Raises:
        Unwatchable: The result holds more than what the call made.
    """

    def __init__(
        self,
        signature: CallSignature,
        watch: Watch,
        leaves: Sequence[Any],
        tape: Tape,
        result: Any,
        forget: Callable[[object], None],
    ) -> None:
        self.signature, self.watch = signature, watch
        self.signature.when_gone(forget)
        self._known = self._overlap(leaves)
        self.network = Network(tape, len(leaves), _template(result, tape))
        self.draws = tape.draws
        """Tells whether it draws random numbers."""

    def widen(self, other: Recording) -> bool:
        """Covers calls of any size in roles where sizes differ, as `Network.widen` does."""
        return self.network.widen(other.network)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the tensors and graphs among the arguments of a call that is like the recorded one.

        None if the call is not like it, or if anything else has changed.
        """
        leaves = self.signature.leaves(args, kwargs)
        if leaves is None or not self.watch.unchanged() or self._overlap(leaves) != self._known:
            return None
        return leaves if self.network.fits(leaves) else None

    def device(self, leaves: Sequence[Any]) -> torch.device:
        """Returns the device of a call with these leaves."""
        return next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))

    def tensors(self, leaves: Sequence[Any]) -> list[Tensor]:
        """Returns the tensors that programs read besides arguments."""
        return [*self.network.own]

    def _overlap(self, leaves: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Returns the ids of leaves that the layer, or a graph, holds as well, 0 for others, and which are the same."""
        ids, held = [*map(id, leaves)], self.watch.ids
        alone = len({*ids}) == len(ids)
        return [i if i in held else 0 for i in ids], [] if alone else [ids.index(i) for i in ids]

    def run(self, programs: Programs, leaves: Sequence[Any], instead: Mapping[int, Tensor] | None = None) -> Any:
        """Returns the result for other arguments.

        Args:
            instead: The tensors to compute with in place of the layer's own, by their ids.

        Raises:
            Differs: A size within the call is not as it was.
        """
        if instead:
            leaves = [instead.get(id(leaf), leaf) for leaf in leaves]
        return self.network.run(programs, leaves, {*map(id, leaves), *self.watch.ids}, instead)


def _template(tree: Any, tape: Tape) -> Any:
    """Returns the result with `Slot` and the like in place of tensors.

    Raises:
        Unwatchable: It holds more than tensors and simple values.
    """
    if isinstance(tree, Tensor):
        try:
            return tape.reference(tree)
        except Unrepeatable:
            raise Unwatchable("its result is not what the call has made") from None
    if type(tree) in (tuple, list):
        return type(tree)([_template(v, tape) for v in tree])
    if type(tree) is dict:
        return {k: _template(v, tape) for k, v in tree.items()}
    if type(tree) is Size:
        return Extent(tree.role)
    if type(tree) not in SIMPLE:
        raise Unwatchable("its result is not what the call has made")
    return tree
