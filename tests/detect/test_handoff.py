"""Accounting across workers: who counted what, when it accuses, and when it only says that it cannot know."""

import pytest

from kvcanary.deployment.facts import Role
from kvcanary.detect.handoff import Sum, accounts, findings
from kvcanary.record.exchange import Exchange
from kvcanary.record.meeting import Topology
from kvcanary.record.window import Window
from kvcanary.verdict.judge import judge
from tests.builders import exchange, facts, healthy, sound, window, work, worker

SHORT = sound(prefill=10_000, decode=100_000)
"""Prefill accepts 9,993 tokens."""
LONG = [exchange(n, tokens=20_000) for n in (1, 2, 3)]
BESIDE = exchange(4, tokens=500)
REFUSED = [exchange(n, tokens=20_000, outcome="refused") for n in (1, 2, 3)]


def rules(*windows: Window, sent: list[Exchange]) -> list[str]:
    return [f.rule for f in findings(windows, sent, SHORT)]


def result(of: Window, sent: list[Exchange]) -> Sum:
    return accounts([of], sent)[0].result


def test_counters_that_agree_accuse_nobody() -> None:
    assert result(window(*LONG), LONG) is Sum.AGREES
    assert rules(window(*LONG), sent=LONG) == []


def test_the_incident_shows_both() -> None:
    incident = window(*LONG, BESIDE, prefill=work(4, 3 + 500))
    assert rules(incident, sent=[*LONG, BESIDE]) == [
        "accounting/prefill-decode",
        "accounting/refusal-not-terminal",
    ]
    (short, not_terminal) = findings([incident], [*LONG, BESIDE], SHORT)
    assert "prefill counted 503 prompt tokens in 4 requests" in short.evidence[0]
    assert not_terminal.exchanges == (1, 2, 3)


def test_below_every_limit_missing_tokens_are_no_refusal() -> None:
    found = findings([window(*LONG, prefill=work(3, 3))], LONG, sound())
    assert [f.rule for f in found] == ["accounting/prefill-decode"]


@pytest.mark.parametrize("limit", [None, 30_000])
def test_where_some_prefill_worker_may_accept_it_nothing_is_said_of_refusals(
    limit: int | None,
) -> None:
    roomy = worker(Role.PREFILL, limit=limit)
    mixed = facts(worker(Role.PREFILL, 10_000), roomy, worker())
    found = findings([window(*LONG, prefill=work(3, 3))], LONG, mixed)
    assert [f.rule for f in found] == ["accounting/prefill-decode"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"decode": work(5, 63_000, 100)}, "other traffic"),
        ({"decode": work(3, 60_001, 60)}, "other traffic"),
        ({"decode": work(3, 60_000, 61)}, "other traffic"),
        ({"decode": work(2, 40_000, 40)}, "some worker unknown"),
        ({"decode": work(2, 60_000, 60)}, "some worker unknown"),
        ({"decode": work(3, 59_999, 60)}, "some worker unknown"),
        ({"decode": None}, "decode worker did not tell"),
        ({"decode": work(3, 60_000).model_copy(update={"requests": None})}, "did not tell"),
        ({"prefill": None}, "prefill worker did not tell"),
        ({"prefill": work(3, 3).model_copy(update={"prompt_tokens": None})}, "did not tell"),
        ({"prefill": work(4, 60_003)}, "other traffic"),
        ({"prefill": work(3, 70_000)}, "other traffic"),
        ({"prefill": work(2, 40_000)}, "decode may have computed some prompts by itself"),
        ({"prefill": work(0, 0)}, "decode may have computed some prompts by itself"),
    ],
)
def test_what_other_traffic_or_silence_explains_is_unknown(
    changes: dict[str, object], why: str
) -> None:
    of = window(*LONG, **changes)
    (account,) = accounts([of], LONG)
    assert account.result is Sum.UNKNOWN
    assert why in account.why
    assert rules(of, sent=LONG) == []


def test_a_cut_off_exchange_makes_no_account() -> None:
    sent = [*LONG, exchange(9, outcome="aborted")]
    assert result(window(*sent, prefill=work(4, 80_000)), sent) is Sum.NO_ACCOUNT
    gone = window(*LONG, exchange(77), decode=work(9, 9))
    assert result(gone, LONG) is Sum.NO_ACCOUNT  # one was never recorded


def test_a_refusal_that_ends_the_request_agrees() -> None:
    sent = [*REFUSED, BESIDE]
    assert result(window(*sent), sent) is Sum.AGREES
    # SGLang counts a placeholder for each refused request
    placeholders = work(4, 503, 23)
    assert result(window(*sent, prefill=placeholders, decode=placeholders), sent) is Sum.AGREES


@pytest.mark.parametrize(
    "changes",
    [
        {"decode": work(4, 60_500, 200)},  # all three went on
        {"decode": work(2, 20_500, 80)},  # one of them
        {"held_tokens": 20_032},  # nothing was decoded, its pages are still reserved
    ],
)
def test_decode_that_works_on_for_a_refused_request(changes: dict[str, object]) -> None:
    sent = [*REFUSED, BESIDE]
    assert rules(window(*sent, **changes), sent=sent) == ["accounting/refusal-not-terminal"]
    for quiet in (False, None):
        loud = window(*sent, quiet=quiet, **changes)
        assert rules(loud, sent=sent) == [], "whose it is cannot be known"


@pytest.mark.parametrize(
    "decode", [work(9, 60_500, 200), work(2, 700, 30), work(4, 200_000, 200), work(2, 502, 40)]
)
def test_growth_that_fits_no_refused_request_is_other_traffic(decode: object) -> None:
    sent = [*REFUSED, BESIDE]
    of = window(*sent, decode=decode)
    assert result(of, sent) is Sum.UNKNOWN
    assert rules(of, sent=sent) == []


def test_without_usage_the_prediction_has_to_do() -> None:
    silent = [
        exchange(n, tokens=20_000, prompt_tokens=None, completion_tokens=None) for n in (1, 2)
    ]
    near = window(*silent, prefill=work(2, 40_100), decode=work(2, 40_100, 77))
    assert result(near, silent) is Sum.AGREES
    far = window(*silent, prefill=work(2, 43_000), decode=work(2, 43_000, 77))
    assert result(far, silent) is Sum.UNKNOWN


def test_several_windows_of_a_stage_make_one_finding() -> None:
    first, second = exchange(1, tokens=20_000), exchange(2, tokens=20_000)
    windows = [window(e, prefill=work(1, 1)) for e in (first, second)]
    found = findings(windows, [first, second], SHORT)
    assert [(f.rule, f.exchanges) for f in found] == [
        ("accounting/prefill-decode", (1, 2)),
        ("accounting/refusal-not-terminal", (1, 2)),
    ]
    assert all(len(f.evidence) == 2 for f in found)


def test_several_stages_make_one_finding_that_names_them() -> None:
    sent = [exchange(n, tokens=20_000, group=g) for n, g in ((1, "window"), (2, "edge"))]
    windows = [window(e, prefill=work(1, 1)).model_copy(update={"group": e.group}) for e in sent]
    found = findings(windows, sent, SHORT)
    assert [(f.rule, f.stratum, f.exchanges) for f in found] == [
        ("accounting/prefill-decode", "accounting", (1, 2)),
        ("accounting/refusal-not-terminal", "accounting", (1, 2)),
    ]
    for one in found:
        assert "`window` and `edge`" in one.title
        assert [line.split(":")[0] for line in one.evidence] == ["`window`", "`edge`"]


# -- the claim ---------------------------------------------------------------------------------


def claim(**fields: object) -> tuple[str, str]:
    verdict = judge(healthy(**fields), ()).verdict
    return next((c.status.value, c.text) for c in verdict.claims if c.name == "accounting")


def test_the_claim_needs_the_workers_counters_where_there_are_prefill_and_decode() -> None:
    assert claim()[0] == "pass"
    status, text = claim(windows=())
    assert status == "inconclusive"
    assert "no stage was counted" in text
    status, text = claim(topology=Topology(prefill=("P1",), decode=("D1",), visible=False))
    assert status == "inconclusive"
    assert "--enable-metrics" in text
    status, text = claim(facts=facts(worker(Role.UNIFIED)), windows=())
    assert (status, "counters" in text) == ("pass", False)


def test_one_unknown_window_keeps_the_claim_from_passing() -> None:
    good = healthy()
    loud = good.windows[0].model_copy(update={"decode": work(90, 1_000_000)})
    status, text = claim(windows=(*good.windows[1:], loud))
    assert status == "inconclusive"
    assert "other traffic" in text
