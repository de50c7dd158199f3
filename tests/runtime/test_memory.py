"""The memory plan of intermediate arrays, and the pool of large buffers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dacergnn.runtime.lower import Buffer
from dacergnn.runtime.memory import ALIGNMENT, Shared, aligned, lined_up, plan_memory, shared
from dacergnn.runtime.pool import LARGE, POOL, SMALL, Lease, Pool, has_memory, leased


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    made: list[Buffer] = []
    for number in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 9))
        last = first + draw(st.integers(0, 5))
        rows, elements = draw(st.sampled_from(["E", "NS", "ONE", "none"])), draw(st.integers(1, 70))
        made.append(Buffer(f"b{number}", rows, (elements,), elements, first, last))
    return made


@given(buffers(), st.integers(0, 50), st.sampled_from([4, 8]))
def test_live_buffers_do_not_overlap(made: list[Buffer], edges: int, item: int) -> None:
    sizes = {"E": edges, "NS": 7, "ONE": 1, "none": 0}
    plan = plan_memory(made, sizes, item)
    ends = {b.name: plan.offsets[b.name] + sizes[b.rows] * b.elements * item for b in made}
    assert plan.offsets.keys() == {b.name for b in made}
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets.values())
    assert all(end <= plan.size for end in ends.values())
    for a in made:
        for b in made:
            if a is not b and a.first <= b.last and b.first <= a.last:  # an operator reads one and writes the other
                assert ends[a.name] <= plan.offsets[b.name] or ends[b.name] <= plan.offsets[a.name] or (
                    sizes[a.rows] * sizes[b.rows] == 0
                )  # fmt: skip


@given(buffers(), st.integers(0, 50), st.data())
def test_buffers_lie_in_place_of_what_ends_with_them(made: list[Buffer], edges: int, data: st.DataObject) -> None:
    """Over each other and over arrays that are given, of which no buffer reaches beyond their end."""
    sizes = {"E": edges, "NS": 7, "ONE": 1, "none": 0}
    made = [replace(b, over=tuple(data.draw(st.sets(st.sampled_from(["g0", "g1", "b0", "b1", "b2"]))))) for b in made]
    given, room = dict[str, tuple[int, int, int]](), 0
    for name in ("g0", "g1"):
        end = room + ALIGNMENT * data.draw(st.integers(0, 40))
        given[name] = (room, end, data.draw(st.integers(-1, 9)))
        room = end
    plan = plan_memory(made, sizes, 4, given, room)
    spans = {n: (start, end, -1, last) for n, (start, end, last) in given.items()}
    for b in made:
        start = plan.offsets[b.name]
        end = start + aligned(sizes[b.rows] * b.elements * 4)
        assert end <= room or start >= room
        assert end <= room + plan.size
        for name, (other, stop, first, last) in spans.items():
            apart = end <= other or stop <= start or last < b.first or b.last < first
            same = (start, end) == (other, stop)
            follows = name in b.over and last == b.first
            overtaken = next((m.over for m in made if m.name == name), ())
            assert apart or (same and follows) or (same and b.name in overtaken and b.last == first)
        spans[b.name] = (start, end, b.first, b.last)


def test_what_was_given_makes_room() -> None:
    chain = [Buffer("x", "E", (16,), 16, 1, 2, over=("g",)), Buffer("y", "E", (16,), 16, 2, 3, over=("x",))]
    length = 10 * 16 * 4
    assert plan_memory(chain, {"E": 10}, 4, {"g": (0, length, 1)}, length).size == 0
    assert plan_memory(chain, {"E": 10}, 4, {"g": (0, length, 2)}, length).size == length
    assert plan_memory(chain[:1], {"E": 10}, 4, {"g": (0, length, 2)}, length).size == length
    assert plan_memory(chain, {"E": 10}, 4, {"h": (0, length, 1)}, length).size == length
    assert plan_memory([replace(b, over=()) for b in chain], {"E": 10}, 4).size == 2 * length


def test_memory_is_shared() -> None:
    chain = [Buffer(f"b{k}", "E", (16,), 16, k, k + 1) for k in range(10)]
    assert plan_memory(chain, {"E": 10}, 4).size == 2 * 10 * 16 * 4
    assert plan_memory([], {}, 4).size == 0


def test_pool_hands_buffers_on() -> None:
    pool = Pool()
    pool.give(pool.take(40 * SMALL))  # leaves room for more buffers than there are
    lease = Lease(pool, 2 * SMALL)
    pointer = lease.buffer.data_ptr()
    other = pool.take(2 * SMALL)
    assert other.data_ptr() != pointer
    del lease
    again, another = pool.take(SMALL), pool.take(SMALL)
    assert again.data_ptr() == pointer != another.data_ptr()
    assert pool.take(SMALL - 1).numel() == SMALL - 1
    pool.give(other)
    pool.clear()


def test_pool_keeps_large_buffers_for_those_that_need_them() -> None:
    pool = Pool()
    large = pool.take(8 * SMALL)
    pool.give(large)
    small = pool.take(SMALL)
    assert small.numel() == SMALL
    assert pool.take(5 * SMALL) is large


def test_pool_holds_little_more_than_was_in_use() -> None:
    pool = Pool()
    for size in (4, 3, 8, 5, 1, 6):  # none fits twice in a row
        buffer = pool.take(size * SMALL)
        pool.give(buffer)
        assert sum(b.numel() for b in pool._free) <= 9 * SMALL
    pool.clear()
    assert pool._free == []


def test_buffers_that_are_given_back_while_another_one_is() -> None:
    """The garbage collector may run at any time, and give a lease back."""
    pool = Pool()
    others = [pool.take(SMALL)]

    class Buffer:
        def __init__(self, tensor: Tensor) -> None:
            self.data_ptr, self.size = tensor.data_ptr, tensor.numel()

        @property
        def nbytes(self) -> int:
            if others:
                pool.give(others.pop())
            return self.size

    buffer: Any = Buffer(pool.take(2 * SMALL))
    pool.give(buffer)
    assert pool.used == 0
    assert len(pool._free) == 2


def test_buffers_that_are_given_back_while_torch_traces() -> None:
    pool = Pool()
    leases = [Lease(pool, 2 * SMALL)]
    graph: Any = torch.jit.trace(lambda x: (leases.clear(), x + 1)[1], torch.ones(3)).graph
    assert "numel" not in str(graph)
    assert pool.used == 0


def test_room_is_less_while_a_limit_is_in_force() -> None:
    class Limit:
        pass

    pool, limit = Pool(), Limit()
    assert pool.room > 1
    pool.limited.add(limit)
    assert pool.room == 1
    del limit
    gc.collect()
    assert pool.room > 1


def test_calls_within_an_arena_share_its_buffer() -> None:
    pool = Pool()
    with pool.arena(8 * SMALL):
        for size in (5, 2, 7):
            first, second = pool.take(size * SMALL), pool.take(SMALL)
            assert second.data_ptr() - first.data_ptr() == size * SMALL
            assert pool.used == 8 * SMALL
            pool.give(first)
            assert pool.take(size * SMALL).data_ptr() == first.data_ptr(), "the first gap"
            pool.give(first)
            pool.give(second)
        assert pool.take(9 * SMALL).numel() == 9 * SMALL, "what does not fit comes from the pool"
        assert pool.used == 17 * SMALL
    assert pool.used == 9 * SMALL
    assert pool.free == 8 * SMALL


def test_an_arena_waits_for_parts_that_are_still_in_use() -> None:
    pool = Pool()
    with pool.arena(4 * SMALL):
        part = pool.take(SMALL)
    assert pool.used == 4 * SMALL
    assert pool.take(4 * SMALL).data_ptr() != part.data_ptr()
    pool.give(part)
    assert (pool.used, pool.free) == (4 * SMALL, 4 * SMALL)


def test_other_threads_may_give_parts_of_an_arena_back() -> None:
    """The garbage collector returns parts in any thread, while the arena still serves its own."""
    pool = Pool()
    with pool.arena(4 * SMALL):
        other = threading.Thread(target=pool.give, args=(pool.take(SMALL),))
        other.start()
        other.join()
        assert pool.used == 4 * SMALL, "the arena still serves this thread"
        part = pool.take(SMALL)
        taken: list[torch.Tensor] = []
        other = threading.Thread(target=lambda: taken.append(pool.take(4 * SMALL)))
        other.start()
        other.join()
        assert taken[0].data_ptr() != part.data_ptr()
        pool.give(part)
    assert (pool.used, pool.free) == (4 * SMALL, 4 * SMALL)


def test_arenas_within_another_and_buffers_beside_them() -> None:
    pool = Pool()
    with pool.arena(4 * SMALL):
        first = pool.take(SMALL)
        with pool.arena(2 * SMALL):
            pool.give(pool.take(SMALL))
        second, beside = pool.take(SMALL), pool.take(SMALL, beside=True)
        assert second.data_ptr() - first.data_ptr() == SMALL
        assert not 0 <= beside.data_ptr() - first.data_ptr() < 4 * SMALL
        pool.give(first)
        pool.give(second)
    assert pool.used == beside.numel()


def test_results_share_the_pool() -> None:
    shape = (LARGE // 256, 64)
    first = leased(shape, torch.float32)
    pointer, part = first.data_ptr(), first[3:5]
    assert (first.shape, first.dtype, first.is_contiguous()) == (shape, torch.float32, True)
    del first
    other = leased(shape, torch.float32)
    assert other.data_ptr() != pointer  # somebody looks at it
    del part
    again = leased(shape, torch.float32)
    assert again.data_ptr() == pointer
    weight = torch.ones(64, requires_grad=True)
    again.zero_().add_(weight)  # as tensors that own their memory
    again.sum().backward()
    assert weight.grad is not None
    assert float(weight.grad[0]) == shape[0]


@pytest.mark.parametrize("mode", [FakeTensorMode, lambda: torch.device("meta")], ids=["fake", "meta"])
def test_pool_keeps_no_tensors_without_memory(mode: Callable[[], Any]) -> None:
    pool, before = Pool(), POOL._used
    with mode():
        pool.take(SMALL)
        assert not has_memory(leased((LARGE,), torch.float32))
    assert (pool._used, POOL._used) == (0, before)


def test_pool_serves_threads() -> None:
    pool = Pool()
    failed: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            buffer = pool.take(SMALL)
            buffer[:8] = number
            if not bool((buffer[:8] == number).all()):
                failed.append(number)
            pool.give(buffer)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@given(buffers(), st.data())
def test_buffers_share_memory_one_after_the_other(made: list[Buffer], data: st.DataObject) -> None:
    made = [replace(b, over=tuple(data.draw(st.sets(st.sampled_from(["b0", "b1", "b2"]))))) for b in made]
    groups = shared(made, {b.name: number for number, b in enumerate(made)}, 4)
    assert sorted(position for group in groups for position in group.positions) == [*range(len(made))]
    for positions, space, width in groups:
        members = [made[position] for position in positions]
        assert {(b.rows, b.elements * 4) for b in members} == {(space, width)}
        for before, after in pairwise(members):
            assert before.last < after.first or (before.last == after.first and before.name in after.over)


def test_what_shares_memory_is_lined_up() -> None:
    made = [Shared((3,), "E", 12), Shared((5, 7), "NS", 4), Shared((4,), "E", 20)]
    assert lined_up(made, {"E": 10, "NS": 7}) == ([(3, 0), (5, 128), (7, 128), (4, 192)], 128 + 64 + 256)
