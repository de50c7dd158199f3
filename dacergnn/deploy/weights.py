"""Files of weights in the format of safetensors: a header in JSON, then the numbers of all tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_ALIGNMENT = 64


@dataclass(frozen=True)
class WeightFile:
    """Holds a file: its header, its tensors, and where each begins behind the header, in bytes."""

    header: bytes
    tensors: Sequence[Tensor]
    offsets: dict[str, int]
    size: int

    @property
    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each tensor."""
        return {name: tensor.nbytes for name, tensor in zip(self.offsets, self.tensors, strict=True)}

    def bytes(self) -> bytes:
        """Returns the file."""
        return self.header + b"".join(_numbers(tensor) for tensor in self.tensors)


def weight_file(tensors: dict[str, Tensor]) -> WeightFile:
    """Returns the file of tensors by name."""
    named = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))  # so that all are aligned
    described: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets: dict[str, int] = {}
    end = 0
    for name, tensor in named:
        offsets[name], end = end, end + tensor.nbytes
        described[name] = {
            "dtype": _kind(tensor.dtype), "shape": list(tensor.shape), "data_offsets": [offsets[name], end],
        }  # fmt: skip
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return WeightFile(len(text).to_bytes(8, "little") + text, [tensor for _, tensor in named], offsets, end)


def _kind(dtype: torch.dtype) -> str:
    letter = "F" if dtype.is_floating_point else "I" if dtype.is_signed else "U"
    return "BOOL" if dtype is torch.bool else f"{letter}{8 * dtype.itemsize}"


def _numbers(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
