"""Adapters: what the model has read is nothing that an adapter may attend over, however alike the text.

Under another adapter the same text has other keys and values; a prefix cache whose key leaves the adapter out
hands over the model's (V20261, S27472). Two signs: tokens counted as cached of a text that this adapter never
had, and labels that are lost of the texts that the model had read before where the adapter keeps those of its
own texts (exact binomial over its own slips: an adapter may be worse at copying than its model).
"""

from collections.abc import Iterator, Sequence

from kvcanary.canary.odds import at_least
from kvcanary.detect.cached import most_shared
from kvcanary.detect.ownership import CONDEMN, slip_rate
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity, stratum_of

LEAST_COUNTED = 2
"""Answers from a cache."""
SURPRISING = 0.005
"""Odds below which losses are told of, though they condemn nobody."""
_REMEDY = (
    "See that the adapter is part of the prefix cache's key on every worker and in every cache connector, or "
    "switch the prefix cache off. (Adapters that share the model's cache on purpose, such as activated LoRA, "
    "need a waiver.)"
)


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """What a cache gave across adapters, as it counts and as the answers show."""
    visits = list(_across(exchanges))
    return (*_counted(visits, exchanges), *_lost(visits, exchanges))


def _across(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """Visits with a text that only the model had read before, or only the adapter."""
    read_by: dict[int, set[bool]] = {}
    for exchange in sorted(exchanges, key=lambda e: e.started_at):
        known = read_by.setdefault(exchange.text, set())
        if known and exchange.manner.adapter not in known and exchange.answered:
            yield exchange
        known.add(exchange.manner.adapter)


def _counted(visits: Sequence[Exchange], exchanges: Sequence[Exchange]) -> Iterator[Finding]:
    most = most_shared(exchanges)
    probes = {e.probe for e in visits}
    firsts = [e for e in exchanges if e.probe in probes and e.text_of is None]
    hits = [e for e in visits if (e.cached_tokens or 0) > most]
    some_count_all = any((e.cached_tokens or 0) > most for e in firsts)
    if len(hits) < LEAST_COUNTED or some_count_all:
        return
    yield Finding(
        rule="replay/cached-across-adapters",
        severity=Severity.ACCOUNTING,
        stratum=stratum_of((e.group for e in hits), "replay"),
        title=f"a prefix cache answered {len(hits)} of {len(visits)} prompts with what another adapter had read",
        evidence=tuple(
            f"request {e.number} ({_who(e)}): {e.cached_tokens:,} of {e.length_tokens:,} tokens cached; only "
            f"{_other(e)} had read that text"
            for e in hits
        ),
        remedy=_REMEDY,
        exchanges=tuple(e.number for e in hits),
    )


def _lost(visits: Sequence[Exchange], exchanges: Sequence[Exchange]) -> Iterator[Finding]:
    own = [e for e in exchanges if e.purpose is Purpose.ADAPTED and e.text_of is None and e.read]
    read = [e for e in visits if e.manner.adapter and e.read]
    lost = [e for e in read if not e.kept]
    if not lost or not own:
        return
    rate = slip_rate(own)
    odds = at_least(len(lost), len(read), rate)
    if odds > SURPRISING:
        return
    condemned = odds <= CONDEMN
    yield Finding(
        rule="replay/lost-across-adapters"
        if condemned
        else "replay/lost-across-adapters-undecided",
        severity=Severity.CORRUPTION if condemned else Severity.DEGRADED,
        stratum=stratum_of((e.group for e in lost), "replay"),
        title=f"an adapter lost the labels of {len(lost)} of {len(read)} texts that its model had read before",
        evidence=(
            *(
                f"request {e.number} ({e.length_tokens:,} tokens, {e.cached_tokens or 0:,} of them cached): the "
                f"text of request {e.text}, label at the {e.asked.value} lost"
                for e in lost
            ),
            f"of {len(own)} texts of its own it keeps {sum(e.kept for e in own)}: odds of {odds:.0e}",
        ),
        remedy=_REMEDY,
        exchanges=tuple(e.number for e in lost),
    )


def _who(exchange: Exchange) -> str:
    return "the adapter" if exchange.manner.adapter else "the model"


def _other(exchange: Exchange) -> str:
    return "the model" if exchange.manner.adapter else "the adapter"
