"""The header of an exported model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dacergnn import UnsupportedCallError, export
from dacergnn.deploy.interface import constant_names


class Reshaped(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)


def test_constants_differ_from_each_other_and_from_those_of_the_interface() -> None:
    inputs, outputs = constant_names("own", ["inputs", "done", "out", "a.b", "a_b"], ["out", "outputs", "too small"])
    assert inputs == ["OWN_INPUTS_2", "OWN_DONE_2", "OWN_OUT", "OWN_A_B", "OWN_A_B_2"]
    assert outputs == ["OWN_OUT_2", "OWN_OUTPUTS_2", "OWN_TOO_SMALL_2"]


def test_arrays_with_more_axes_than_the_structures_have_sizes(tmp_path: Path) -> None:
    narrow, wide = torch.randn(5, 16), torch.randn(5, 2, 2, 2, 2)
    with pytest.raises(UnsupportedCallError, match="out has 5 axes, and a C library passes 4 at most"):
        export(Reshaped(-1, 2, 2, 2, 2).eval(), tmp_path, example=(narrow,))
    with pytest.raises(UnsupportedCallError, match="x has 5 axes"):
        export(Reshaped(-1, 16).eval(), tmp_path, example=(wide,))
    assert export(Reshaped(-1, 4, 2, 2).eval(), tmp_path, example=(narrow,)).library.is_file()
