"""Draws masks of dropout on the CPU: the numbers that torch draws, in less time.

Where `bernoulli_` of torch asks its Mersenne twister for number after number, as it does on other processors than
Intel's, a library does the same for all words of the twister at once. It holds the lock of torch's generator meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cache, lru_cache
from math import ceil, ldexp
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from dacergnn.errors import BuildError
from dacergnn.native.build import HELPER_FLAGS, build
from dacergnn.runtime.pool import SMALL, has_memory, leased
from dacergnn.runtime.transformed import is_recorded, is_transformed

_CODE = f"""// for torch {torch.__version__}
#include <ATen/CPUGeneratorImpl.h>
#include "include/dacergnn/dropout.h"
extern "C" void draw_factors(c10::GeneratorImpl *generator, std::uint64_t limit, std::uint64_t kept, void *factors,
                             std::int64_t bytes, std::int64_t count) {{
  auto &source = static_cast<at::CPUGeneratorImpl &>(*generator);
  const std::lock_guard<std::mutex> lock(source.mutex_);
  at::mt19937 engine = source.engine();
  auto state = engine.data();
  int position = dacergnn::kTwisterWords + 1 - state.left_;
  const auto draw = [&]<class Bits>(Bits) {{
    dacergnn::draw_factors(state.state_.data(), position, limit, (Bits)kept, (Bits *)factors, count);
  }};
  if (bytes == 2) draw(std::uint16_t{{}});
  if (bytes == 4) draw(std::uint32_t{{}});
  if (bytes == 8) draw(std::uint64_t{{}});
  state.left_ = dacergnn::kTwisterWords + 1 - position;
  state.next_ = position;
  engine.set_data(state);
  source.set_engine(engine);
}}
"""
_TORCH = Path(torch.__file__).parent
_OPTIONS = (f"-isystem{_TORCH / 'include'}", f"-L{_TORCH / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu")
_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
_LEAST = 1000
"""Number of elements below which torch draws them: it takes some 20 us for them, and a build takes seconds."""
_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_count_of_modes = _C._len_torch_dispatch_stack
log = logging.getLogger("dacergnn.build")


def ones_after_dropout(shape: Sequence[int], p: float, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns what torch's dropout makes of ones in training: 0 with probability ``p``, else 1 / (1 - p).

    The random numbers, and the state in which torch's generator is left, are torch's.
    """
    factors = torch.empty(shape, dtype=dtype, device=device)  # torch reads sizes of a recorded call without a note
    ours = _only_computes() and has_memory(factors) and factors.numel() >= _LEAST and isinstance(p, float) and 0 < p < 1
    if ours and _draws_as_torch(dtype):
        if factors.nbytes >= SMALL:  # its pages are still untouched, and would cost more than the numbers
            factors = leased(tuple(factors.shape), dtype)
        _draw(factors, p, torch.default_generator)
        return factors
    return functional.dropout(factors.fill_(1), p)


def _only_computes() -> bool:
    """Tells whether torch only computes; what transforms or records its operations would not see ours."""
    recorded = torch.compiler.is_compiling() or _count_of_modes() or is_recorded()
    return not recorded and not is_transformed()


@cache
def _draws_as_torch(dtype: torch.dtype) -> bool:
    """Tells whether the library draws the numbers that torch draws, by some numbers of generators of their own."""
    if dtype not in _BITS or _library() is None:
        return False
    ours, theirs = (Generator("cpu").manual_seed(1) for _ in range(2))
    p, found = 1 / 3, torch.empty(700, dtype=dtype, device="cpu")
    _draw(found, p, ours)
    expected = torch.empty_like(found).bernoulli_(1 - p, generator=theirs).div_(1 - p)
    return torch.equal(found, expected) and torch.equal(ours.get_state(), theirs.get_state())


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(build("dropout", _CODE, options=(*HELPER_FLAGS, *_OPTIONS))))
    except (BuildError, OSError) as error:
        log.info("masks of dropout are drawn by torch: %s", error)
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.draw_factors.argtypes = [pointer, number, number, pointer, number, number]
    library.draw_factors.restype = None
    return library


def _draw(factors: Tensor, p: float, generator: Any) -> None:
    library = _library()
    assert library is not None
    memory = factors.data_ptr(), factors.element_size(), factors.numel()
    library.draw_factors(generator._cdata, *_numbers(p, factors.dtype), *memory)


@lru_cache(maxsize=64)
def _numbers(p: float, dtype: torch.dtype) -> tuple[int, int]:
    """Returns the number of 53 bits below which a random one keeps an element, and the bits of the factor then."""
    kept = torch.ones((), dtype=dtype, device="cpu").div_(1 - p)
    return ceil(ldexp(1 - p, 53)), int(kept.view(_BITS[dtype]).item())
