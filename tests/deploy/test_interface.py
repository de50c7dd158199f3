"""The header of an exported model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dacergnn import UnsupportedCallError, export
from dacergnn.deploy.interface import constant_names
from tests.support.library import Library, Refused


class Reshaped(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)


class Doubled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) * 2).flatten(1)


class Picked(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return x[self.name].relu()


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


@pytest.mark.parametrize(("shape", "joined"), [((-1, 2, 2, 2, 2), 4), ((-1, 2, 1, 2, 2), 3)])
def test_arrays_between_have_at_most_three_axes_of_rows(shape: tuple[int, ...], joined: int, tmp_path: Path) -> None:
    model = Doubled(Reshaped(*shape)).eval()
    if joined > 3:
        with pytest.raises(UnsupportedCallError, match="have more than 3 axes; join some"):
            export(model, tmp_path, example=(torch.randn(5, 16),))
    else:
        x = torch.randn(6, 8)
        library = Library(export(model, tmp_path, example=(torch.randn(5, 8),)))
        assert torch.equal(library(x)[0], 2 * x)


def test_any_name_of_an_argument_stands_in_messages(tmp_path: Path) -> None:
    example = ({"50%s": torch.randn(5, 16)},)
    library = Library(export(Picked("50%s").eval(), tmp_path, example=example))
    with pytest.raises(Refused, match=r"x\.50%s: size 15 in axis 1 must be 16"):
        library(torch.randn(5, 15))
