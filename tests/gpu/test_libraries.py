"""Exported libraries for CUDA on a device: addresses of torch's tensors, and torch's stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dacergnn
from tests.deploy.networks import NAMES, assert_equal, leaves, trained
from tests.support.library import Library


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str, tmp_path: Path, device: torch.device) -> None:
    network = trained(name)
    architecture = 10 * torch.cuda.get_device_capability(device)[0]
    model = dacergnn.optimize(network.model)
    made = dacergnn.export(model, tmp_path, example=network.arguments(30, 90), cuda_arch=(architecture,))
    library, stream = Library(made), torch.cuda.Stream(device)
    for seed, (nodes, edges) in enumerate([(2000, 9000), (9, 13), (0, 0), (1, 1), (300, 700)]):
        arguments = network.arguments(nodes, edges, seed)
        with torch.no_grad():
            expected = leaves(dacergnn.revert(network.model)(*arguments))
        tensors = [tensor.to(device) for tensor in leaves(arguments)]
        results = [torch.empty_like(wanted, device=device) for wanted in expected]
        outputs, _ = library.outputs(1)
        for own, result in zip(outputs, results, strict=True):
            own.data, own.bytes = result.data_ptr(), result.nbytes
        stream.wait_stream(torch.cuda.current_stream(device))
        library.run(library.inputs(tensors), outputs, stream.cuda_stream)
        stream.synchronize()
        assert_equal([result.cpu() for result in results], expected)
