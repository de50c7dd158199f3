"""Runs a layer piece by piece of the nodes of a process, so that rows of others are there for one piece at a time.

The rows of the next piece are on their way while one piece is computed. The backward receives and computes each piece
again: sequential aggregation and rematerialization, as in SAR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dacergnn.distributed.part import ONLY, Key, Piece, Rows
from dacergnn.errors import DistributedError
from dacergnn.runtime.dynamo import skipped_by_dynamo


def run_in_rounds(
    layer: nn.Module,
    pieces: Sequence[Piece],
    edges: Callable[[Piece], Any],
    typed: bool,
    x: Rows,
    values: Sequence[Mapping[Key, Tensor]],
) -> Rows:
    """Returns the results of a layer for own nodes; differentiable once.

    Args:
        layer: Called with rows, edges, and values of edges.
        pieces: The pieces of the nodes of this process, in the order in which they run.
        edges: Returns what the layer takes as the edges of a piece.
        typed: Whether the layer takes dictionaries.
        x: The rows of own nodes.
        values: Arguments that have a row for each edge of the process.

    Raises:
        DistributedError: The layer computes statistics over nodes, or another process has failed.
    """
    for name, module in layer.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:  # pyright: ignore[reportPrivateUsage]
            raise DistributedError(
                f"{name or 'the layer'} is a {type(module).__name__}, whose statistics would be those of one piece of "
                "the nodes; call it on the results, as torch.nn.SyncBatchNorm."
            )
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    call = _Call(layer, pieces, edges, typed, [*x], [[*value] for value in values], trained)
    tensors = [*x.values(), *(tensor for value in values for tensor in value.values())]
    made: Any = _InRounds.apply(call, *tensors, *trained)  # pyright: ignore[reportUnknownMemberType]
    return dict(zip(call.made, made, strict=True))


class _Call:
    """Runs the pieces of one call.

    Its tensors are rows of own nodes, then values of edges, then parameters.

    Args:
        kinds: The node types of the rows.
        keys: The relations of the values.
        trained: The parameters that need gradients.
    """

    def __init__(
        self, layer: nn.Module, pieces: Sequence[Piece], edges: Callable[[Piece], Any], typed: bool, kinds: list[str],
        keys: list[list[Key]], trained: list[nn.Parameter],
    ) -> None:  # fmt: skip
        self.layer, self.pieces, self.edges, self.typed = layer, pieces, edges, typed
        self.kinds, self.keys, self.trained = kinds, keys, trained
        self.made: list[str] = []
        """Holds the node types of the results."""
        self._states: list[Tensor] = []  # of random numbers, before each piece
        self._modes = [module.training for module in layer.modules()]
        self._autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the results."""
        results: Rows = {}
        for piece, inputs in self._inputs(tensors):
            self._states.append(torch.get_rng_state())
            made = self._computed(piece, inputs)
            if not results:
                counts = {kind: sum(len(p.targets[kind]) for p in self.pieces) for kind in made}
                results = {kind: rows.new_empty((counts[kind], *rows.shape[1:])) for kind, rows in made.items()}
            for kind, total in results.items():
                total[piece.targets[kind]] = made[kind]
        self.made = [*results]
        return tuple(results.values())

    def backward(
        self, tensors: Sequence[Tensor], wanted: Sequence[bool], seeds: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Returns the gradients of the tensors in ``wanted``, added up piece by piece."""
        if self._modes != [module.training for module in self.layer.modules()]:
            raise DistributedError(
                "the layer was switched between training and evaluation before the backward, which computes it again; "
                "switch it afterwards."
            )
        totals: list[Tensor | None] = [
            torch.zeros_like(tensor) if needed else None for tensor, needed in zip(tensors, wanted, strict=True)
        ]
        nodes = {kind: total for kind, total in zip(self.kinds, totals, strict=False) if total is not None}
        first = len(tensors) - len(self.trained)
        totals[first:] = [None for _ in self.trained]  # those that are not used get no gradient
        back: Callable[[], None] | None = None
        for (piece, inputs), state in zip(self._inputs(tensors), self._states, strict=True):
            found = self._differentiated(piece, inputs, wanted, seeds, state)
            if back is not None:
                back()  # what others have for the piece before has arrived meanwhile
            rows = {kind: own for kind, own in zip(self.kinds, found, strict=False) if own is not None}
            back = piece.start_back(rows, nodes)
            self._add_values(piece, found, totals)
            for number in range(first, len(tensors)):
                totals[number] = _sum(totals[number], found[number])
            del found, rows
        if back is not None:
            back()
        return totals

    def _inputs(self, tensors: Sequence[Tensor]) -> Iterator[tuple[Piece, list[Tensor]]]:
        """Yields each piece with its rows and values, while the rows of the next piece are received."""
        x = dict(zip(self.kinds, tensors, strict=False))
        keys = [key for own in self.keys for key in own]
        values = tensors[len(x) : len(x) + len(keys)]
        wait = self.pieces[0].start(x)
        for piece, later in zip(self.pieces, [*self.pieces[1:], None], strict=True):
            inputs = [*wait().values(), *(v[piece.edges[key]] for key, v in zip(keys, values, strict=True))]
            wait = later.start(x) if later is not None else wait
            yield piece, inputs
            inputs.clear()  # before those of the next piece are made

    def _computed(self, piece: Piece, inputs: Sequence[Tensor]) -> Rows:
        """Returns the results of the targets of a piece."""
        left = iter(inputs)
        rows: Any = {kind: next(left) for kind in self.kinds}
        values: list[Any] = [{key: next(left) for key in own} for own in self.keys]
        if not self.typed:
            rows, values = rows[ONLY], [value[ONLY, ONLY, ONLY] for value in values]
        made: Any = self.layer(rows, self.edges(piece), *values)
        made = made if self.typed else {ONLY: made}
        return {kind: own[: len(piece.targets[kind])] for kind, own in made.items() if own is not None}

    def _differentiated(
        self, piece: Piece, inputs: Sequence[Tensor], wanted: Sequence[bool], seeds: Sequence[Tensor], state: Tensor
    ) -> list[Tensor | None]:
        """Returns the gradients of the inputs of a piece, then those of parameters: None where these are not used."""
        enabled, dtype = self._autocast
        leaves = [tensor.detach().requires_grad_(needed) for tensor, needed in zip(inputs, wanted, strict=False)]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), torch.autocast("cpu", dtype, enabled):
            torch.set_rng_state(state)
            results = self._computed(piece, leaves)
        made = [results[kind] for kind in self.made]
        own = [seed[piece.targets[kind]] for kind, seed in zip(self.made, seeds, strict=True)]
        needed = [tensor for tensor, needed in zip([*leaves, *self.trained], wanted, strict=True) if needed]
        left = iter(torch.autograd.grad(made, needed, own, allow_unused=True))
        found = [next(left) if needed else None for needed in wanted]
        for number, leaf in enumerate(leaves):  # other processes wait for these
            if wanted[number] and found[number] is None:
                found[number] = torch.zeros_like(leaf)
        return found

    def _add_values(self, piece: Piece, found: Sequence[Tensor | None], totals: Sequence[Tensor | None]) -> None:
        """Writes the gradients of the values of the edges of a piece."""
        keys = [key for own in self.keys for key in own]
        first, last = len(self.kinds), len(self.kinds) + len(keys)
        for key, gradient, total in zip(keys, found[first:last], totals[first:last], strict=True):
            if gradient is not None and total is not None:
                total[piece.edges[key]] = gradient


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if total is None else total if part is None else total + part


class _InRounds(torch.autograd.Function):
    """Differentiates a call."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return call.forward(tensors)

    @staticmethod
    @once_differentiable
    @skipped_by_dynamo
    def backward(ctx: Any, *seeds: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *ctx.call.backward(ctx.saved_tensors, ctx.needs_input_grad[1:], seeds)
