"""Prefixes are found by what they say, and only by those who may."""

import numpy as np

from kvcanary.lab.prefix_cache import PrefixCache, page_keys

IDS = np.arange(1, 101, dtype=np.int32)
PAGES = np.arange(10, 20, dtype=np.int32)


def filled() -> tuple[PrefixCache, list[bytes]]:
    cache, keys = PrefixCache(), page_keys(IDS, 10, "")
    assert not len(cache.insert(keys, PAGES, 0))
    cache.unlock(keys)
    return cache, keys


def test_only_full_pages_have_keys_and_each_depends_on_all_before() -> None:
    keys = page_keys(IDS[:99], 10, "")
    assert len(keys) == 9
    changed = IDS[:99].copy()
    changed[25] = 7
    assert [a == b for a, b in zip(keys, page_keys(changed, 10, ""), strict=True)] == (
        [True] * 2 + [False] * 7
    )


def test_another_salt_finds_nothing() -> None:
    cache, keys = filled()
    assert cache.lock(keys).tolist() == PAGES.tolist()
    assert not len(cache.lock(page_keys(IDS, 10, "tenant")))


def test_the_oldest_goes_first_and_its_tail_before_its_head() -> None:
    cache, _ = filled()
    other = page_keys(IDS + 1000, 10, "")[:2]
    cache.insert(other, np.array([1, 2], np.int32), 0)
    cache.unlock(other)
    assert cache.evict(3).pages.tolist() == [19, 18, 17]
    assert cache.evict(99).pages.tolist() == [16, 15, 14, 13, 12, 11, 10, 2, 1]


def test_pages_in_use_are_not_evicted() -> None:
    cache, keys = filled()
    cache.lock(keys[:4])
    assert cache.evictable_pages == 6
    assert len(cache.evict(10).pages) == 6
    cache.unlock(keys[:4])
    assert cache.evictable_pages == 4


def test_the_slower_of_two_equal_prompts_gives_its_pages_back() -> None:
    cache, keys = filled()
    spare = cache.insert(keys[:3], np.array([90, 91, 92], np.int32), 1)
    assert spare.tolist() == [91, 92]
