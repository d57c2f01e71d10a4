"""Who the prompts are sent as, and the phantoms: made the same way, never sent.

A phantom is the live null of every statement about names and private words. All identities of a run
are dealt at random by one keyed shuffle, so before a prompt is sent a phantom is as likely to be hit
by a model's own chatter as a tenant is. What the answers say about phantoms is what chance says.
"""

import random
from dataclasses import dataclass

from kvcanary.canary.lexicon import NAME_BITS, Lexicon
from kvcanary.canary.sitekey import SiteKey

PRIVATE_WORDS = 8
"""Private words of one tenant."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An identity: its three-word name and its own words. ``index`` is its place in the run."""

    index: int
    name_number: int
    name: str
    private: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """Everybody in a run."""

    tenants: tuple[Tenant, ...]
    phantoms: tuple[Tenant, ...]


def deal(site_key: SiteKey, nonce: bytes, count: int, lexicon: Lexicon) -> Cast:
    """Deal names and private words to ``count`` tenants; whoever is left over is a phantom.

    Raises ValueError when the lexicon has fewer than ``count + 1`` groups: without a phantom there is
    no null to compare with.
    """
    shuffler = random.Random(site_key.derive("cast", nonce))
    words = list(lexicon.private)
    shuffler.shuffle(words)
    groups = len(words) // PRIVATE_WORDS
    if count >= groups:
        raise ValueError(f"{count} tenants asked for, the lexicon has words for {groups - 1}")
    numbers = shuffler.sample(range(1 << NAME_BITS), groups)
    everybody = tuple(
        Tenant(
            index=index,
            name_number=number,
            name=" ".join(lexicon.name_words(number)),
            private=tuple(words[index * PRIVATE_WORDS : (index + 1) * PRIVATE_WORDS]),
        )
        for index, number in enumerate(numbers)
    )
    return Cast(tenants=everybody[:count], phantoms=everybody[count:])
