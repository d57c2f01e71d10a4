"""Ownership: what condemns a stratum, what explains a loss, what stays open."""

import random
from collections.abc import Sequence

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.detect import ownership
from kvcanary.record.exchange import Exchange, Form, Purpose, Recall
from kvcanary.verdict.findings import Severity
from tests.builders import calibration, exchange, foreign, readers

ALL = set(Position)


def control(first: int = 20, **fields: object) -> list[Exchange]:
    return readers(first, "control", purpose=Purpose.CONTROL, **{"tokens": 8_000, **fields})


def confirmations(first: int, count: int, **fields: object) -> list[Exchange]:
    return [
        exchange(
            first + i, purpose=Purpose.CONFIRMATION, **{"lost": True, "tokens": 9_900, **fields}
        )
        for i in range(count)
    ]


def rules(exchanges: Sequence[Exchange]) -> list[str]:
    return [f.rule for f in ownership.findings(ownership.measure(exchanges))]


def test_all_kept_is_no_finding_and_nothing_to_ask_again() -> None:
    sent = [*calibration(*range(9)), *readers(10), *control()]
    groups = {g.name: g for g in ownership.measure(sent)}
    assert rules(sent) == []
    assert ownership.again(sent) == ()
    assert len(groups["edge"].measured) == 3
    assert groups["edge"].losing == ()
    assert groups["edge"].odds == 1.0


def test_all_lost_waits_for_confirmation_with_fresh_text() -> None:
    sent = [*calibration(*range(9)), *readers(10, lost=ALL), *control()]
    assert "ownership/labels-lost" not in rules(sent)
    assert [e.group for e in ownership.again(sent)] == ["edge"]


def test_all_lost_and_confirmed_is_corruption() -> None:
    sent = [
        *calibration(*range(9)),
        *readers(10, lost=ALL, tokens=9_900),
        *control(),
        *confirmations(30, 2),
    ]
    found = ownership.findings(ownership.measure(sent))
    assert [(f.rule, f.severity, f.stratum) for f in found] == [
        ("ownership/labels-lost", Severity.CORRUPTION, "edge")
    ]
    assert found[0].exchanges == (10, 11, 12, 30, 31)
    assert "5 of 5 answers" in found[0].title
    assert sum("confirmation with fresh text" in line for line in found[0].evidence) == 2
    assert ownership.again(sent) == ()


def test_a_confirmation_that_keeps_its_label_counts_too() -> None:
    """A confirmation is no retry: one slip, asked again and kept, is explained and recorded."""
    sent = [
        *calibration(*range(9)),
        *readers(10, lost={Position.START}),
        *control(),
        *confirmations(30, 1, lost=False),
    ]
    (edge,) = (g for g in ownership.measure(sent) if g.name == "edge")
    assert (len(edge.losing), len(edge.measured)) == (1, 4)
    assert not edge.condemned


def test_one_slip_of_a_model_that_slips_is_explained() -> None:
    slipping = calibration(0, 1, 2, 3, 4, 5, 6, 7, 8)
    slipping[3] = slipping[3].model_copy(update={"recall": "lost"})
    sent = [
        *slipping,
        *readers(10, lost={Position.MIDDLE}),
        *control(),
        *confirmations(30, 1, lost=False),
    ]
    assert rules(sent) == []
    assert ownership.again(sent) == ()


def test_too_many_for_slips_and_too_few_to_condemn_is_a_warning() -> None:
    sent = [
        *calibration(*range(9)),
        *readers(10, lost={Position.START, Position.END}),
        *control(),
        *confirmations(30, 1, lost=True),
        *confirmations(31, 3, lost=False, asked=Position.MIDDLE),
    ]
    found = ownership.findings(ownership.measure(sent))
    assert [(f.rule, f.severity) for f in found] == [
        ("ownership/labels-lost-undecided", Severity.DEGRADED)
    ]
    assert ownership.again(sent) == (), "no more than four confirmations"


def test_without_a_sound_control_nothing_is_measured() -> None:
    sent = [*calibration(0, 1, 2, lost=True), *readers(10, lost=ALL, tokens=9_000)]
    (edge,) = ownership.measure(sent)
    assert edge.measured == ()
    assert rules(sent) == []
    assert ownership.unsound(sent) == tuple(Position)


def test_what_was_not_answered_is_not_lost() -> None:
    for outcome in ("refused", "hung", "errored", "truncated", "not_reached", "aborted"):
        sent = [*calibration(*range(9)), *control(), *readers(10, outcome=outcome)]
        (edge,) = (g for g in ownership.measure(sent) if g.name == "edge")
        assert (edge.measured, edge.losing) == ((), ())


def test_losing_the_head_far_beyond_the_control_is_not_condemned() -> None:
    """A model may be weak with length; the label on the last page, just before the answer, is not far."""
    sent = [*calibration(*range(9)), *control(tokens=1_000)]
    head = [exchange(40 + i, asked=Position.START, lost=True, tokens=60_000) for i in range(3)]
    head += [
        exchange(
            50 + i, asked=Position.START, lost=True, tokens=60_000, purpose=Purpose.CONFIRMATION
        )
        for i in range(4)
    ]
    kept = [
        exchange(60 + i, asked=p, tokens=60_000)
        for i, p in enumerate((Position.MIDDLE, Position.END))
    ]
    assert rules([*sent, *head, *kept]) == ["ownership/labels-lost-undecided"]
    tail = [e.model_copy(update={"asked": Position.END}) for e in head]
    kept[1] = kept[1].model_copy(update={"asked": Position.START})
    assert rules([*sent, *tail, *kept]) == ["ownership/labels-lost"]


def test_losing_all_three_far_beyond_the_control_is_condemned_by_the_last_page() -> None:
    far = [*control(tokens=1_000), *readers(10, lost=ALL, tokens=60_000)]
    sent = [*calibration(*range(9)), *far]
    assert [e.asked for e in ownership.again(sent)] == [Position.END]
    head = confirmations(30, 4, tokens=60_000)
    assert rules([*sent, *head]) == ["ownership/labels-lost-undecided"]
    tail = confirmations(30, 4, tokens=60_000, asked=Position.END)
    assert rules([*sent, *tail]) == ["ownership/labels-lost"]


@pytest.mark.parametrize("slips", [0.05, 0.15, 0.3])
def test_a_model_that_forgets_with_length_and_slips_besides_is_never_condemned(
    slips: float,
) -> None:
    """Head and middle are always lost far beyond the control, and the last page by a slip now and then: by
    design that condemns in at most one run of 10,000, so in 200 never."""
    rng = random.Random(int(100 * slips))
    condemned = lost_all = 0
    for _ in range(200):
        good = [
            *(e.model_copy(update=_slip(rng, slips)) for e in calibration(*range(12))),
            *(e.model_copy(update=_slip(rng, slips)) for e in control(tokens=4_000)),
        ]
        far = readers(30, lost={Position.START, Position.MIDDLE}, tokens=60_000)
        far[-1] = far[-1].model_copy(update=_slip(rng, slips))
        lost_all += not far[-1].kept
        sent = [*good, *far]
        while again := [e for e in ownership.again(sent) if e.group == "edge"]:
            (asked,) = {e.asked for e in again}
            kept = asked is Position.END and rng.random() >= slips
            sent += confirmations(100 + len(sent), 1, asked=asked, tokens=60_000, lost=not kept)
        condemned += "ownership/labels-lost" in rules(sent)
    assert lost_all > 5, "all three positions were lost now and then"
    assert condemned == 0


def _slip(rng: random.Random, rate: float) -> dict[str, object]:
    return {"recall": Recall.LOST if rng.random() < rate else Recall.KEPT}


def test_few_losses_that_speak_of_others_are_condemned() -> None:
    """Two losses alone would be undecided."""
    lost = {Position.START}
    sent = [*calibration(*range(9)), *control(), *readers(10, lost=lost, tokens=9_900)]
    sent += confirmations(30, 1)
    assert "ownership/labels-lost" not in rules(sent)
    speaking = [
        e if e.kept else e.model_copy(update={"foreign": (foreign(Form.PHRASE, extent=6),)})
        for e in sent
    ]
    assert "ownership/labels-lost" in rules(speaking)
    word = [e if e.kept else e.model_copy(update={"foreign": (foreign(Form.WORD),)}) for e in sent]
    assert "ownership/labels-lost" not in rules(word)


def test_a_condemned_stratum_vouches_for_nobody() -> None:
    middle = readers(10, "middle", lost={Position.START, Position.MIDDLE}, tokens=9_900)
    middle += confirmations(30, 4, group="middle")
    longer = readers(40, "edge", tokens=12_000)
    groups = {
        g.name: g
        for g in ownership.measure([*calibration(*range(9)), *control(), *middle, *longer])
    }
    assert groups["middle"].condemned
    assert {c.name for c in groups["edge"].controls.values()} == {"control"}


def test_bystanders_are_judged_and_vouch_for_nobody() -> None:
    bystanders = readers(70, "bystanders", purpose=Purpose.BYSTANDER, tokens=2_000)
    sent = [*calibration(*range(9)), *bystanders, *control(), *readers(10)]
    groups = {g.name: g for g in ownership.measure(sent)}
    assert len(groups["bystanders"].measured) == 3
    assert "bystanders" not in {c.name for c in groups["edge"].controls.values()}
    assert list(groups)[-1] == "bystanders"


@pytest.mark.parametrize("slips", [0, 1, 3])
def test_a_worse_model_needs_more_losses(slips: int) -> None:
    """Never below: the more it slips in good conditions, the weaker the same losses are."""
    good = calibration(*range(12))
    for i in range(slips):
        good[i] = good[i].model_copy(update={"recall": "lost"})
    sent = [*good, *control(), *readers(10, lost=ALL, tokens=9_900), *confirmations(30, 1)]
    (edge,) = (g for g in ownership.measure(sent) if g.name == "edge")
    fewer = [
        *calibration(*range(12)),
        *control(),
        *readers(10, lost=ALL, tokens=9_900),
        *confirmations(30, 1),
    ]
    (base,) = (g for g in ownership.measure(fewer) if g.name == "edge")
    assert edge.slip_rate == pytest.approx((slips + 1) / (15 + 2)), (
        "Laplace's rule, of 15 good answers"
    )
    assert (edge.odds > base.odds) is (slips > 0)


def test_the_order_of_the_exchanges_does_not_matter() -> None:
    sent = [
        *calibration(*range(9)),
        *readers(10, lost=ALL, tokens=9_900),
        *control(),
        *confirmations(30, 2),
    ]
    assert ownership.findings(ownership.measure(sent)) == ownership.findings(
        ownership.measure(sent[::-1])
    )
