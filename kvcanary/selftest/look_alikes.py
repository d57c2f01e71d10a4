"""Innocent look-alikes: what a canary that cries wolf would take for a leak, a loss or an outage.

Source: the lessons at the end of the fault catalogue: caches that hit one's own prefix, answers that end
by ``length``, one 503, a public system prompt, a marker that is quoted or pasted are all innocent, and a
pool that is too small and refuses properly is a finding on capacity and no more.
"""

from kvcanary.canary.codes import PREFIX, CodeId, CodeMaker
from kvcanary.canary.sitekey import SiteKey
from kvcanary.selftest.case import Case, Kind

_ELSEWHERE = SiteKey(bytes(range(1, 33)))
"""Another site's key: its markers cannot be verified here."""


def pasted_marker() -> str:
    """A marker of somebody else's kvcanary, as it stands in a prompt."""
    code = CodeMaker(_ELSEWHERE).make(CodeId(run=5, request=3, position=1))
    groups = "-".join((PREFIX, *(code[at : at + 4] for at in range(0, len(code), 4))))
    return f"the ledger label is {groups}"


def _innocent(key: str, what: str, *habits: str, scenario: str = "healthy") -> Case:
    return Case(key=key, kind=Kind.LOOK_ALIKE, what=what, habits=habits, scenario=scenario)


def look_alikes() -> tuple[Case, ...]:
    """All of them."""
    return (
        _innocent("own-cache", "early first tokens of one's own cached prefix"),
        _innocent("length-finish", "answers that end by `length`, as asked", "output-cap=40"),
        _innocent("quoting", "a tenant's own marker fifty times in its answer", "quote"),
        _innocent("system-prompt", "a public system prompt shared by all", "system-prompt=300"),
        _innocent("one-503", "one 503 under overload", "overloaded-at=9"),
        _innocent("varying", "greedy output that varies a little", "unrepeatable"),
        _innocent("slips", "a model that slips more often than most", "copy-error=0.03"),
        _innocent("chatter", "a model that adds chatter", "chatter", "copy-error=0.02"),
        _innocent("cold-start", "a slow cold start", "cold-start=3"),
        _innocent("router-headers", "a router that adds headers, cookies and ids", "adds-headers"),
        _innocent("thinking", "reasoning that mentions the question", "thinks"),
        _innocent("thinking-cut-off", "thinking that ends with the output budget", "overthinks"),
        _innocent("moderation", "a moderation layer that declines now and then", "moderates=0.15"),
        _innocent("reordered-json", "a gateway that writes JSON in another order", "reorders-json"),
        _innocent("no-usage", "a gateway that takes usage out", "no-usage"),
        _innocent(
            "small-pool",
            "a pool smaller than the context that refuses with a fast 400",
            scenario="glm-5.3-patched",
        ),
        _innocent(
            "pasted-marker",
            "somebody else's marker pasted into answers",
            f"pastes={pasted_marker()}",
        ),
    )
