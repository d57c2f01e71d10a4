"""llama.cpp: a pool that only concurrency exhausts.

With one unified pool each slot says that it takes the whole of it. One prompt at a time is served well; together
they end each other, with a 500 and a green ``/health``.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.engines.real.environments import Environments
from tests.engines.real.llamacpp import MODEL, SLOTS, llama_server

POOL = 1_536
WORDS = 650
"""Of one prompt, a token each: two fit into the pool, three do not."""


def answered(url: str, first_word: str) -> int:
    """The status of a prompt like no other."""
    body = {"model": MODEL, "prompt": first_word + " and" * WORDS, "max_tokens": 8}
    return httpx.post(f"{url}/completions", json=body, timeout=None, trust_env=False).status_code


@pytest.mark.parametrize(("unified", "pool"), [(True, POOL), (False, SLOTS * POOL)])
def test_what_one_pool_for_all_slots_does(
    unified: bool, pool: int, environments: Environments, tmp_path: Path
) -> None:
    with llama_server(environments, tmp_path, pool=pool, unified=unified) as url:
        assert {answered(url, word) for word in ("one", "two", "three")} == {200}
        with ThreadPoolExecutor() as together:
            statuses = set(together.map(lambda word: answered(url, word), ("four", "five", "six")))
        healthy = httpx.get(f"{url.removesuffix('/v1')}/health", trust_env=False).status_code
    assert healthy == 200
    assert (500 in statuses) == unified
