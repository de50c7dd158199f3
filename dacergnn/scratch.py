"""Makes tensors in temporary files, whose pages the system writes to the disk where it needs their memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dacergnn.errors import DacergnnError


def zeros_in_file(folder: str | Path, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Returns zeros in a temporary file, which is removed with the tensor.

    Raises:
        DacergnnError: The folder cannot hold the file.
    """
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return torch.zeros(*shape, dtype=dtype)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process when the tensor is written to
                os.posix_fallocate(file.fileno(), 0, size)
            return torch.from_numpy(np.memmap(file, np.uint8, "r+", shape=size)).view(dtype).view(tuple(shape))
    except OSError as error:
        raise DacergnnError(
            f"{folder} cannot hold a temporary file of {size} bytes: {error.strerror}; name another folder."
        ) from None
