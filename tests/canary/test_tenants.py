"""Everybody has a name and words of their own, the phantoms too."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.lexicon import NAME_BITS, lexicon
from kvcanary.canary.sitekey import SiteKey
from kvcanary.canary.tenants import PRIVATE_WORDS, deal

KEY = SiteKey(bytes(range(32)))
GROUPS = len(lexicon().private) // PRIVATE_WORDS


def test_every_list_of_the_lexicon_is_disjoint_from_every_other() -> None:
    words = [*chain(*lexicon().slots), *chain(*lexicon().names), *lexicon().private]
    assert len(set(words)) == len(words)
    assert len(words) == 9 * 256 + len(lexicon().private)


@given(st.binary(max_size=16), st.integers(0, GROUPS - 1))
def test_nobody_shares_a_name_or_a_word(nonce: bytes, count: int) -> None:
    cast = deal(KEY, nonce, count, lexicon())
    everybody = (*cast.tenants, *cast.phantoms)
    assert len(cast.tenants) == count
    assert len({someone.name for someone in everybody}) == GROUPS
    assert len({someone.name_number for someone in everybody}) == GROUPS
    words = [word for someone in everybody for word in someone.private]
    assert len(set(words)) == len(words) == GROUPS * PRIVATE_WORDS
    assert [someone.index for someone in everybody] == list(range(GROUPS))


@given(st.binary(max_size=16), st.integers(1, GROUPS - 1))
def test_who_is_a_phantom_depends_on_the_count_alone(nonce: bytes, count: int) -> None:
    """A phantom is dealt what the next tenant would have been: nothing sets it apart."""
    cast, one_more = deal(KEY, nonce, count - 1, lexicon()), deal(KEY, nonce, count, lexicon())
    assert cast.phantoms[0] == one_more.tenants[-1]
    assert cast.tenants + cast.phantoms == one_more.tenants + one_more.phantoms
    assert cast.phantoms


def test_there_is_always_a_phantom() -> None:
    with pytest.raises(ValueError, match=f"{GROUPS} tenants asked for"):
        deal(KEY, b"", GROUPS, lexicon())


def test_a_phantom_is_as_likely_to_be_dealt_any_word_as_a_tenant_is() -> None:
    """Over many nonces each word is a tenant's as often as the tenants' share of the groups says."""
    word, deals, count = lexicon().private[0], 1_000, 22
    hits = 0
    for nonce in range(deals):
        tenants = deal(KEY, nonce.to_bytes(4, "big"), count, lexicon()).tenants
        hits += any(word in tenant.private for tenant in tenants)
    expected = deals * count * PRIVATE_WORDS / len(lexicon().private)
    assert abs(hits - expected) < 4.5 * expected**0.5


def test_another_nonce_or_key_deals_other_names() -> None:
    first = deal(KEY, b"1", 5, lexicon())
    assert first == deal(SiteKey(bytes(range(32))), b"1", 5, lexicon())
    for other in (deal(KEY, b"2", 5, lexicon()), deal(SiteKey(bytes(32)), b"1", 5, lexicon())):
        assert not {t.name for t in first.tenants} & {t.name for t in other.tenants}


@given(st.integers(0, (1 << NAME_BITS) - 1))
def test_a_name_is_its_number(number: int) -> None:
    places = [lexicon().name_of[word] for word in lexicon().name_words(number)]
    assert [alphabet for alphabet, _ in places] == [0, 1, 2]
    assert int.from_bytes(bytes(byte for _, byte in places), "big") == number
