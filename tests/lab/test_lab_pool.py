"""Pages: who gets which, what stays in them, what comes along."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.lab.free_list import FreeList, FreeListPolicy
from kvcanary.lab.pool import Pool
from kvcanary.lab.tokenizer import IntArray
from kvcanary.lab.truth import Witness


def pool(pages: int = 8, policy: FreeListPolicy = FreeListPolicy.LIFO) -> Pool:
    return Pool(pages * 4, 4, policy, Witness(pages * 4, 4))


def pages(*numbers: int) -> IntArray:
    return np.array(numbers, np.int32)


def taken(free: FreeList, count: int) -> list[int]:
    got = free.take(count)
    assert got is not None
    return list(got.tolist())


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        (FreeListPolicy.LIFO, [3, 2, 1, 0, 4, 5]),
        (FreeListPolicy.FIFO, [4, 5, 1, 0, 3, 2]),
        (FreeListPolicy.SORTED, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_the_policy_orders_reuse(policy: FreeListPolicy, after: list[int]) -> None:
    free = FreeList(6, policy)
    assert taken(free, 4) == [0, 1, 2, 3]
    free.put(pages(1, 0))
    free.put(pages(3, 2))
    assert len(free) == 6
    assert free.take(7) is None
    assert taken(free, 6) == after


def test_sorted_pages_wait_until_the_list_runs_short() -> None:
    free = FreeList(4, FreeListPolicy.SORTED)
    taken(free, 2)
    free.put(pages(1, 0))
    assert taken(free, 2) == [2, 3]
    assert taken(free, 2) == [0, 1]


@settings(deadline=None, derandomize=True)
@given(st.permutations(range(6)), st.integers(0, 10), st.integers(1, 14))
def test_what_is_written_is_what_is_read(order: list[int], start: int, count: int) -> None:
    kv, table = pool(6), np.array(order, np.int32)
    ids = np.arange(1, 25, dtype=np.int32)
    kv.write(table, 0, ids, author=1)
    kv.write(table, start, ids[:count] + 100, author=2)
    ids[start : start + count] = ids[:count] + 100
    assert np.array_equal(kv.gather(table, 0, 24), ids)
    assert np.array_equal(kv.gather(table, start, 24), ids[start:])


def test_nothing_is_cleared() -> None:
    kv = pool()
    first = kv.allocate(2, owner=1)
    assert first is not None
    kv.write(first, 0, pages(1, 2, 3, 4, 5), author=1)
    kv.release(first)
    again = kv.allocate(2, owner=2)
    assert again is not None
    assert kv.gather(again, 0, 6).tolist() == [1, 2, 3, 4, 5, 0]


def test_a_page_cannot_be_released_twice() -> None:
    kv = pool()
    kv.allocate(2, owner=1)
    kv.release(pages(1))
    with pytest.raises(RuntimeError, match="twice"):
        kv.release(pages(0, 1))


def test_a_transfer_copies_whole_pages() -> None:
    source, target = pool(), pool()
    source.write(pages(0, 1), 0, pages(1, 2, 3, 4, 5, 6), author=1)
    source.write(pages(1), 0, pages(9), author=2)
    target.receive(pages(3, 7), source, pages(0, 1))
    assert target.gather(pages(3, 7), 0, 8).tolist() == [1, 2, 3, 4, 9, 6, 0, 0]
    assert target.witness.writers[7].tolist() == [2, 1, 0, 0]


def test_writes_by_others_are_noticed() -> None:
    kv = pool()
    mine = kv.write(pages(0, 1), 0, pages(1), author=1)
    kv.write(pages(2), 0, pages(5), author=2)
    assert not kv.written_since(pages(0, 1), mine)
    kv.write(pages(1), 2, pages(5), author=2)
    assert kv.written_since(pages(0, 1), mine)
