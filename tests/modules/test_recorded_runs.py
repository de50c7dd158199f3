"""Backwards of calls that torch has compiled read what autograd has recorded of the forward, which runs once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import dacergnn
from dacergnn.modules import recorded_runs, torch_operator
from tests.modules.layers import (
    K,
    M,
    arguments,
    assert_close,
    compiled,
    gradients,
    hetero_graph,
    native,
    pyg,
    rgcn,
    weighted,
)

# torch's own tracing warns about parts of torch.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the layers that have run in operators, in order."""
    found, run = list[int](), torch_operator._run  # pyright: ignore[reportPrivateUsage]

    def counted(number: int, *rest: Any) -> list[Tensor]:
        found.append(number)
        return run(number, *rest)

    monkeypatch.setattr(torch_operator, "_run", counted)
    return found


def kept() -> int:
    """The number of runs that may still have a backward."""
    return len(recorded_runs._TOKENS)  # pyright: ignore[reportPrivateUsage]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = pyg().SAGEConv(K, M, normalize=True), pyg().GATConv(M, 4, heads=2)

    def forward(self, x: Tensor, edge_index: Tensor, *_: Tensor) -> Tensor:
        hidden = self.first(x, edge_index).relu_()  # may write to what the layer has returned
        return self.second(hidden, edge_index)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_step_runs_each_forward_once(backend: str, runs: list[int]) -> None:
    model, args = Net(), arguments()
    expected = gradients(model, args)
    fast: Any = torch.compile(dacergnn.optimize(model), backend=backend, fullgraph=True)
    assert_close(gradients(fast, args), expected, 1e-4)
    assert (len(runs), kept()) == (2, 0)


def test_a_second_backward_reads_the_same_record(runs: list[int]) -> None:
    layer, args = compiled(rgcn()), arguments()
    loss = weighted(torch.compile(layer, backend="aot_eager", fullgraph=True)(*args))
    parameters = [*layer.parameters()]
    found = [torch.autograd.grad(loss, parameters, retain_graph=retained) for retained in (True, True, False)]
    expected = torch.autograd.grad(weighted(layer(*args)), parameters)
    for values in found:
        assert_close(values, expected)
    assert (len(runs), kept()) == (1, 0)


def test_records_go_with_the_results_and_after_errors(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, args = native("RGCN"), (arguments()[0], hetero_graph())
    fast = torch.compile(layer, backend="aot_eager", fullgraph=True)
    result = fast(*args)
    assert kept() == 1
    del result
    assert kept() == 0

    def refuse(*_: Any) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr(layer, "run", refuse)
    with pytest.raises(RuntimeError, match="refused"):
        fast(*args)
    assert (len(runs), kept()) == (2, 0)


def test_a_copied_token_runs_the_call_again(runs: list[int]) -> None:
    layer, args = compiled(rgcn()), arguments()
    fast = torch.compile(layer, backend="aot_eager", fullgraph=True)

    def offloaded(*call: Any) -> Tensor:
        with saved_tensors_hooks(Tensor.clone, Tensor.detach):
            return fast(*call)

    parameters = [*layer.parameters()]
    found = torch.autograd.grad(weighted(offloaded(*args)), parameters)
    assert_close(found, torch.autograd.grad(weighted(layer(*args)), parameters))
    assert (len(runs), kept()) == (2, 0)


def test_a_record_serves_its_own_inputs_alone() -> None:
    """torch may compute an input again for the backward, and use its memory for something else meanwhile."""
    layer, (x, *edges) = compiled(rgcn()), arguments()
    parameters, text = [*layer.parameters()], "(({0}, {1}, {2}, ), {})"
    rest = (parameters, layer.number, text, ",".join(n for n, _ in layer.named_parameters()))
    wanted = [0, 3]
    *results, token = torch_operator.call_layer([x, *edges], *rest, wanted)
    again = x.clone()
    x.zero_()
    seeds = [r.cos() for r in results]
    found = torch_operator.layer_backward(seeds, [again, *edges], *rest, wanted, token)
    leaf = again.requires_grad_()
    assert_close(found, torch.autograd.grad(layer(leaf, *edges), [leaf, parameters[0]], seeds))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_of_parameters_run_once(backend: str) -> None:
    layer, args = compiled(rgcn()), arguments()
    seen = list[Tensor]()
    layer.weight.register_hook(seen.append)
    weighted(torch.compile(layer, backend=backend, fullgraph=True)(*args)).backward()
    assert len(seen) == 1


def test_operators_own_the_memory_of_their_results() -> None:
    whole = torch.zeros(4, 3)
    alone, viewed, saved = torch.ones(2), whole[1:].data, torch.ones(3, requires_grad=True)
    result = saved.exp()  # autograd saves it
    found = recorded_runs.owned([alone, viewed, result.data, torch.ones(3, 2).t().data])
    assert found[0] is alone
    assert not {t.untyped_storage().data_ptr() for t in found} & {
        t.untyped_storage().data_ptr() for t in (whole, result)
    }
    assert all(t.is_contiguous() for t in found)
