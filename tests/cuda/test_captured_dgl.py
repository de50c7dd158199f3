"""Forwards over DGL graphs whose calls are replayed as CUDA graphs, in emulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from tests.support.emulated_device import emulated_device
from tests.support.emulated_graph import EmulatedRecorder, emulated_graphs

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
fn = dgl.function
__all__ = ["emulated_device", "emulated_graphs"]


class Layer(nn.Module):
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x * g.ndata["f"]
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            return g.ndata["out"]


@pytest.mark.usefixtures("emulated_graphs")
def test_columns_of_graphs_are_those_of_the_moment(
    emulated_device: Config, emulated_graphs: type[EmulatedRecorder]
) -> None:
    g = dgl.graph((torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 3, 3])))
    config, plain = replace(emulated_device, cuda_graph=True), Layer()
    layer = dacergnn.compile(Layer(), config=config, on_unsupported="error")
    kept: list[Tensor] = []  # so that no column comes to lie where one before it was
    for step in range(12):
        if step % 4 == 0:
            g.ndata["f"] = torch.randn(4, 16)
            kept.append(g.ndata["f"])
        g.ndata["f"].mul_(1.5)
        x = torch.randn(4, 16)
        torch.testing.assert_close(layer(g, x), plain(g, x))
    assert emulated_graphs.count > 0
