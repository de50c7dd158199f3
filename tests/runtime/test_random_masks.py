"""Masks of dropout: the numbers that torch draws, and the state in which it leaves its generator."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dacergnn.errors import UnsupportedMachineError
from dacergnn.frontends.symbolic.sizes import Guard, Size
from dacergnn.native import processor
from dacergnn.native.build import build
from dacergnn.runtime import random_masks
from dacergnn.runtime.pool import SMALL
from dacergnn.runtime.random_masks import ones_after_dropout

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WORDS = 624


def by_torch(shape: Any, p: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.dropout(torch.ones(shape, dtype=dtype), p)


def by_us(shape: Any, p: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    return ones_after_dropout(shape, p, dtype=dtype, device=CPU)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Lets the library draw few numbers, too, and leaves torch's generator as it was."""
    monkeypatch.setattr(random_masks, "_LEAST", 1)
    with torch.random.fork_rng(devices=[]):
        yield


def drawn(draw: Callable[[], Any]) -> list[Tensor]:
    """Returns what a function draws, the state of torch's generator then, and what follows."""
    found = draw()
    state = torch.get_rng_state()
    return [found, state, torch.rand(3), torch.randn(3), torch.randn(20), torch.empty(5).bernoulli_(0.5)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_the_library_draws_except_where_torch_asks_mkl() -> None:
    """torch asks MKL on processors that it knows to be Intel's, and else draws masks as it draws numbers of 64 bits."""
    torch.manual_seed(3)
    masks = torch.empty(1000).bernoulli_(0.5)
    torch.manual_seed(3)
    asks_mkl = not torch.equal(masks.bool(), torch.rand(1000, dtype=torch.float64) < 0.5)
    assert processor.features()
    assert [random_masks._draws_as_torch(dtype) for dtype in DTYPES] == [not asks_mkl] * 4


BEFORE: dict[str, Callable[[], object]] = {
    "a seed": lambda: None,
    "a word": lambda: torch.rand(1),
    "words": lambda: torch.randint(7, (WORDS + 3,)),
    "a normal number": lambda: torch.randn(1),  # another one waits
    "a normal number of 64 bits": lambda: torch.randn(1, dtype=torch.float64),
    "a block": lambda: torch.rand(WORDS),
}


@pytest.mark.parametrize("p", [0.1, 0.5, 1 / 3, 0.9, 1e-9, 1 - 1e-9, 1e-17, 1e-300, 1 - 2**-53, 0.0, 1.0, 0, 1])
@pytest.mark.parametrize("before", BEFORE)
def test_numbers_and_state_are_those_of_torch(p: float, before: str) -> None:
    for dtype in DTYPES:
        for shape in ((0,), (1,), (311,), (312,), (313,), (WORDS,), (25, 25), (3, 0, 2), (7, 11, 13)):
            outcomes: list[list[Tensor]] = []
            for draw in (by_us, by_torch):
                torch.manual_seed(5)
                BEFORE[before]()
                outcomes.append(drawn(lambda draw=draw, shape=shape, dtype=dtype: draw(shape, p, dtype)))
            assert_same(*outcomes)


def test_many_numbers() -> None:
    outcomes: list[list[Tensor]] = []
    for draw in (by_us, by_torch):
        torch.manual_seed(3)
        outcomes.append(drawn(lambda draw=draw: draw((10_000, 1000), 0.3)))
    assert_same(*outcomes)


def test_numbers_follow_one_another() -> None:
    outcomes: list[list[Tensor]] = []
    for draw in (by_us, by_torch):
        torch.manual_seed(9)
        parts = [draw(100, 0.4), torch.rand(1), draw((40, 10), 0.2)]
        with torch.random.fork_rng(devices=[]):
            parts += [draw(333, 0.1), torch.randn(3)]
        parts += [draw(5, 0.5), torch.randperm(9), draw(1000, 0.7, torch.float64)]
        with torch.inference_mode():
            parts.append(draw(100, 0.4))
        outcomes.append([*parts, torch.get_rng_state()])
    assert_same(*outcomes)


def test_a_checkpoint_draws_the_same_again() -> None:
    x = torch.ones(50, 20, requires_grad=True)

    def dropped(x: Tensor) -> Tensor:
        return (x * by_us(x.shape, 0.5)).square()

    found: Any = checkpoint(dropped, x, use_reentrant=False)
    found.sum().backward()
    assert torch.equal(x.grad, found * 2)  # type: ignore[arg-type]  # a square of the mask itself


def test_threads_draw_no_number_twice() -> None:
    count, rounds = 100_000, 30

    def work(draw: Callable[..., Tensor]) -> list[Tensor]:
        return [draw(count, 0.5) for _ in range(rounds)]

    torch.manual_seed(2)
    by_torch(3 * count * rounds, 0.5)
    expected = torch.get_rng_state()
    torch.manual_seed(2)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, [by_us, by_us, by_torch]))
    assert torch.equal(torch.get_rng_state(), expected)


def test_sizes_of_recorded_calls_are_not_noted() -> None:
    guards: dict[Guard, None] = {}
    rows = Size.of(600, (0, 0), guards)
    for columns in (0, 3, SMALL // 600):
        assert by_us(torch.Size([rows, columns]), 0.5).shape == (600, columns)
    assert not guards


def refuse(*_: object) -> None:
    raise AssertionError("torch draws here")


def fake() -> object:
    with FakeTensorMode():
        return by_us(100, 0.5)


TORCH_DRAWS: dict[str, Callable[[], object]] = {
    "FakeTensorMode": fake,
    "make_fx": lambda: make_fx(lambda x: x * by_us(x.shape, 0.5))(torch.ones(9)),
    "vmap": lambda: torch.vmap(lambda x: x * by_us(x.shape, 0.5), randomness="same")(torch.ones(2, 9)),
    "forward mode": lambda: torch.func.jvp(lambda x: x * by_us(x.shape, 0.5), (torch.ones(9),), (torch.ones(9),)),
    "torch.compile": lambda: torch.compile(lambda x: x * by_us(x.shape, 0.5), backend="eager", fullgraph=True)(
        torch.ones(9)
    ),
    "a trace": lambda: torch.jit.trace(lambda x: x * by_us(x.shape, 0.5), torch.ones(9), check_trace=False),
    "no memory": lambda: ones_after_dropout((9,), 0.5, dtype=torch.float32, device=torch.device("meta")),
    "an integer": lambda: by_us(100, 1),
    "a tensor": lambda: by_us(100, torch.tensor(0.5)),
    "certainty": lambda: by_us(100, 1.0),
    "few numbers": lambda: by_us(0, 0.5),
}


@pytest.mark.parametrize("case", TORCH_DRAWS)
def test_where_torch_draws(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_masks, "_draw", refuse)
    TORCH_DRAWS[case]()


@pytest.mark.parametrize(("p", "dtype"), [(1.5, torch.float32), (float("nan"), torch.float32), (0.5, torch.complex64)])
def test_torch_raises_its_own_errors(p: float, dtype: torch.dtype) -> None:
    with pytest.raises((ValueError, RuntimeError)) as expected:
        by_torch(100, p, dtype)
    with pytest.raises(expected.type) as found:
        by_us(100, p, dtype)
    assert str(found.value) == str(expected.value)


@pytest.fixture
def untried() -> Generator[None]:
    """Lets the next call try the library anew, and the next test, too."""
    for remembered in (random_masks._library, random_masks._draws_as_torch):
        remembered.cache_clear()
    yield
    for remembered in (random_masks._library, random_masks._draws_as_torch):
        remembered.cache_clear()


def without_a_compiler(*_: Any, **__: Any) -> None:
    raise UnsupportedMachineError("there is no compiler")


def with_another_state(factors: Tensor, p: float, generator: torch.Generator) -> None:
    state = generator.get_state()
    factors.copy_(torch.empty_like(factors).bernoulli_(1 - p, generator=generator).div_(1 - p))
    generator.set_state(state)


def with_other_numbers(factors: Tensor, p: float, generator: torch.Generator) -> None:
    factors.copy_(torch.empty_like(factors).bernoulli_(1 - p, generator=generator).div_(1 - p).flip(0))


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("name", "function"),
    [("build", without_a_compiler), ("_draw", with_another_state), ("_draw", with_other_numbers)],
)
def test_a_library_that_draws_otherwise_is_not_used(
    name: str, function: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_masks, name, function)
    outcomes: list[list[Tensor]] = []
    for draw in (by_us, by_torch):
        torch.manual_seed(3)
        outcomes.append(drawn(lambda draw=draw: draw(1000, 0.3)))
    assert_same(*outcomes)
    assert not random_masks._draws_as_torch(torch.float32)


TWISTER = """
#include "include/dacergnn/dropout.h"
extern "C" int draw(std::uint32_t *words, int position, std::uint64_t limit, std::uint32_t *factors, long count) {
  dacergnn::draw_factors(words, position, limit, 7u, factors, count);
  return position;
}
"""


@pytest.mark.parametrize("limit", [1, 2**52 + 12345, 2**53])
def test_the_twister_is_that_of_python(limit: int) -> None:
    """The module of Python draws from the same twister; the lower word of its numbers comes first."""
    draw = ctypes.CDLL(str(build("twister", TWISTER))).draw
    source = random.Random(4)
    source.getrandbits(32 * 5)
    for count in (1, 309, 311, 313, 1000):
        *words, position = source.getstate()[1]
        memory, factors = (ctypes.c_uint32 * WORDS)(*words), (ctypes.c_uint32 * count)()
        end = draw(memory, position, ctypes.c_uint64(limit), factors, ctypes.c_long(count))
        numbers = [(source.getrandbits(32) % 2**21 << 32) | source.getrandbits(32) for _ in range(count)]
        assert [*factors] == [7 if number < limit else 0 for number in numbers]
        assert (*memory, end) == source.getstate()[1]
