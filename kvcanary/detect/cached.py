"""Cached tokens: a prompt that is unique from its first page on has nothing in any prefix cache.

What an engine counts as cached beyond the frame that all requests share came from pages of somebody
else's prompt: a cache key that leaves something out, or a collision. Source: a7; CVE-2025-25183. Some
deployments count what prefill hands over to decode as cached: they do so for the control, too.
"""

from collections import Counter
from collections.abc import Sequence

from kvcanary.detect.unusual import unusual
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

SLACK_TOKENS = 256
"""A page of any engine, and a system prompt that a chat template puts before every request."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """A warning for each stratum of first visits that a cache answered for.

    Not for replays, whose text may have been sent before.
    """
    once = _once(exchanges)
    most = most_shared(exchanges)
    return tuple(
        Finding(
            rule="accounting/cached-unseen",
            severity=Severity.DEGRADED,
            stratum=one.group,
            title=f"{len(one.having)} of {one.answers} prompts in `{one.group}` were found in a prefix cache, "
            "and nobody had sent them before",
            evidence=tuple(
                f"request {e.number}: {e.cached_tokens:,} of {e.length_tokens:,} tokens cached; "
                f"what all requests share is at most {most:,}"
                for e in one.having
            ),
            remedy="Switch the prefix cache off, or give tenants a cache salt, until it is known whose pages "
            "these were.",
            exchanges=tuple(e.number for e in one.having),
        )
        for one in unusual(once, lambda e: (e.cached_tokens or 0) > most)
    )


def most_shared(exchanges: Sequence[Exchange]) -> int:
    """Cached tokens that no text of anybody's has to explain: the frame that all requests share."""
    calibration = (e for e in _once(exchanges) if e.purpose is Purpose.CALIBRATION)
    return 2 * max((e.cached_tokens or 0 for e in calibration), default=0) + SLACK_TOKENS


def _once(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """First visits: texts that nobody had sent before."""
    sent = Counter(e.number for e in exchanges)
    return [e for e in exchanges if sent[e.number] == 1 and e.text_of is None]
