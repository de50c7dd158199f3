"""Finds the function of torch that describes a tensor to C code without a call into Python for each property."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_MAJOR = 1  # of DLPack, whose header `DLPackExchangeAPI` follows


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
    )


def _find() -> int | None:
    capsule: Any = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    exchange = _Exchange.from_address(pointer_of(capsule, b"dlpack_exchange_api"))
    return exchange.describe if exchange.major == _MAJOR else None


DESCRIBE: int | None = _find()
"""Address of ``dltensor_from_py_object_no_sync``; None if torch is too old to have it."""
