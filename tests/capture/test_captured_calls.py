"""Captured models in what users do with calls: copies, hooks, threads, processes, modes, transforms, options."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

import dacergnn
from dacergnn import Config, DacergnnError
from dacergnn.errors import UnsupportedCallError
from dacergnn.modules.capture.backend import compile_graph
from dacergnn.modules.graph_forward import compiled_forwards
from tests.capture.captured import Backend, Sum, assert_close, assert_same, captured, given, outcome, pair, ran
from tests.capture.plain_models import KGIN, BellmanFord

# torch's own tracing warns about parts of torch.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def test_many_models_of_a_class() -> None:
    for _ in range(10):
        module, fast = pair(Sum)
        assert_same(fast, module, given(module))
        assert ran(captured(fast))


def test_models_of_a_class_share_a_graph() -> None:
    backend = Backend(on_unsupported="error")
    torch.manual_seed(0)
    for module in [KGIN().double() for _ in range(2)]:
        assert_same(torch.compile(module, backend=backend, dynamic=True), module, given(module))
    assert len(backend.graphs) == 1
    assert ran(backend.graphs)


def test_second_derivatives() -> None:
    module, fast = pair(KGIN)
    args, (relations,) = given(module), module.parameters()
    found: list[Any] = []
    for call in (fast, module):
        first = torch.autograd.grad(call(*args).pow(3).sum(), (args[0], relations), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), (args[0], relations)))
    assert_close(*found)


@pytest.mark.parametrize("name", ["grad", "vmap", "jvp"])
def test_transforms(name: str) -> None:
    module, fast = pair(KGIN)
    x, *edges = given(module)
    x = x.detach()

    def transformed(call: nn.Module) -> Any:
        own = dict(call.named_parameters())
        match name:
            case "grad":
                return grad(lambda p: functional_call(call, p, (x, *edges)).square().sum())(own)
            case "vmap":
                return vmap(lambda rows: call(rows, *edges))(torch.stack([x, 2 * x]))
            case _:
                return jvp(lambda rows: call(rows, *edges), (x,), (x.cos(),))

    for _ in range(2):
        assert_close(transformed(fast), transformed(module))
        assert_same(fast, module, (x, *edges))


def test_hooks() -> None:
    module, fast = pair(Sum)
    module.eval(), fast.eval()
    args = given(module)
    for _ in range(3):
        assert_same(fast, module, args)
    module.linear.register_forward_hook(lambda _, __, result: result * 3)  # optimize shares the part
    assert_same(fast, module, args)
    module.linear.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    assert_same(fast, module, args)
    fast.register_forward_hook(lambda _, __, result: result - 2)  # and so are the model's own
    before = fast.register_forward_pre_hook(lambda _, inputs: (inputs[0].tanh(), *inputs[1:]))
    assert_same(fast, module, args)
    before.remove()
    assert_same(fast, module, args)
    assert ran(captured(fast))


def test_modes_of_gradients() -> None:
    module, fast = pair(BellmanFord)
    args = given(module)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            assert_close(fast(*args), module(*args))
        assert_same(fast, module, args)
        with mode():
            fresh = [a.clone() for a in args]
            assert_close(fast(*fresh), module(*fresh))
    assert ran(captured(fast))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_children() -> None:
    module, fast = pair(KGIN)
    args = given(module)
    assert_same(fast, module, args)
    child = os.fork()
    if child == 0:
        try:
            assert_same(fast, module, args)
            assert_same(fast, module, given(module, 20, 50))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads() -> None:
    module, fast = pair(KGIN)
    calls = [given(module, 20 + i, 60 + i, i) for i in range(4)]
    expected = [module(*args) for args in calls]
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                for args, values in zip(calls, expected, strict=True):
                    assert_close(fast(*args), values)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
    assert ran(captured(fast))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "fast"}, r'options\["mode"\] is not known; the options are config and on_unsupported'),
        ({"config": {"threads": 2}}, r'options\["config"\] is a dict; pass a dacergnn.Config'),
        ({"on_unsupported": "stop"}, r'options\["on_unsupported"\]=\'stop\' is not one of "warn", "error", "ignore"'),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    module = KGIN().double()
    with pytest.raises(Exception, match=problem) as raised:
        torch.compile(module, backend=compile_graph, options=options)(*given(module))
    error = raised.value
    assert isinstance(getattr(error, "inner_exception", error), DacergnnError)


class Reads(nn.Module):
    """Scales sums of neighbours by a number that it reads from them."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        return h * h.sum().item()


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_options() -> None:
    args, config = given(Reads()), Config(check_graph="never")
    problem = r"model cannot be compiled: a number is read from a tensor \(\.item\(\)\)\."
    for choice, expected in (
        ("error", pytest.raises(UnsupportedCallError, match=problem)),
        ("warn", pytest.warns(UserWarning, match="runs uncompiled: a number is read from a tensor")),
        ("ignore", nullcontext()),
    ):
        torch._dynamo.reset()
        backend = Backend(config=config, on_unsupported=choice)
        with expected:
            assert_close(torch.compile(Reads(), backend=backend, dynamic=True)(*args), Reads()(*args))
        assert backend.graphs[0].core.config is config


def test_copies_and_reports() -> None:
    module, fast = pair(Sum)
    module.eval(), fast.eval()
    args = given(module)
    for _ in range(2):
        assert_same(fast, module, args)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), dacergnn.optimize(dacergnn.revert(fast))):
        assert_close(other.state_dict(), module.state_dict())
        assert_close(*[outcome(m, args, [*m.parameters()]) for m in (other, module)])
        assert captured(other)[0] is not captured(fast)[0]
        assert ran(captured(other))
    fast.load_state_dict({name: 2 * value for name, value in module.state_dict().items()})
    assert_same(fast, module, args)
    assert "Sum compiled for training" in str(dacergnn.explain(fast))
    plain = dacergnn.revert(nn.Sequential(fast))[0]
    assert type(plain) is Sum
    assert plain.linear is module.linear
    assert not compiled_forwards(plain)
    assert_same(plain, module, args)
