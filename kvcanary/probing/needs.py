"""What a probe needs to say anything at all. One whose needs are not met is skipped, with the reason. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvcanary.deployment.facts import Facts
from kvcanary.record.run import UnmetNeed


class Need(StrEnum):
    """What a probe may need of a deployment and of the way it is reached."""

    STREAMING = "streaming"
    KNOWN_POOL = "known-pool"
    KNOWN_LIMIT = "known-limit"
    METRICS = "metrics"
    SEVERAL_KEYS = "several-keys"
    SEVERAL_WORKERS = "several-workers"
    ADAPTERS = "adapters"

    @property
    def meaning(self) -> str:
        """What has to be so, in a line."""
        return _MEANINGS[self]


_MEANINGS = {
    Need.STREAMING: "answers are streamed, so that first tokens can be timed",
    Need.KNOWN_POOL: "every decode worker's pool is known",
    Need.KNOWN_LIMIT: "the longest prompt that every worker accepts is known",
    Need.METRICS: "every worker's counters can be read",
    Need.SEVERAL_KEYS: "requests are sent with two API keys or more",
    Need.SEVERAL_WORKERS: "more than one pair of workers serves requests",
    Need.ADAPTERS: "an adapter (LoRA) of the model is served and known",
}


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known before anything is planned. ``pairs``: pairs of workers, None where unknown; ``counted``:
    whether all of them tell their counters; ``keys``: API keys that requests are sent with; ``adapters``: those
    of the model that are known."""

    facts: Facts
    streaming: bool = True
    pairs: int | None = None
    counted: bool = False
    keys: int = 1
    adapters: int = 0


def unmet(probe: str, needs: Sequence[Need], situation: Situation) -> tuple[UnmetNeed, ...]:
    """What is missing. Where there is nothing that the probe could test, it is not applicable."""
    return tuple(
        UnmetNeed(probe=probe, need=need.value, reason=reason, applicable=applicable)
        for need in needs
        for reason, applicable in _missing(need, situation)
    )


def _missing(need: Need, at: Situation) -> Iterator[tuple[str, bool]]:
    match need:
        case Need.STREAMING if not at.streaming:
            yield "answers are not streamed (--no-stream)", True
        case Need.KNOWN_POOL if at.facts.decode_pool_tokens is None:
            yield "the decode workers' pools are unknown", True
        case Need.KNOWN_LIMIT if at.facts.limit_tokens is None:
            yield "the workers' limit is unknown", True
        case Need.METRICS if not at.counted:
            yield "not every worker's counters can be read (/metrics)", True
        case Need.SEVERAL_KEYS if at.keys < 2:
            yield "all requests have one API key", False
        case Need.ADAPTERS if not at.adapters:
            yield "no adapter of the model is listed (/v1/models), nor given to a tenant", False
        case Need.SEVERAL_WORKERS if at.pairs is None:
            yield "how many workers there are is unknown", True
        case Need.SEVERAL_WORKERS if at.pairs is not None and at.pairs < 2:
            yield "one pair of workers serves everything", False
