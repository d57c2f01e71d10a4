"""Foreign text: when it is a leak, when a warning, when nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary import odds
from kvcanary.canary.run_number import begun
from kvcanary.detect import foreign as detector
from kvcanary.record.exchange import Exchange, ForeignText, Form, Nulls
from kvcanary.verdict.findings import Finding, Severity
from tests.builders import RUN, SCALE, exchange, foreign


def holding(*texts: ForeignText, number: int = 1, group: str = "edge", **nulls: object) -> Exchange:
    counted = Nulls.model_validate({"code_windows": 20, "phrase_windows": 1, **nulls})
    return exchange(number, group=group, foreign=texts, nulls=counted)


def findings(*exchanges: Exchange) -> list[Finding]:
    return list(detector.findings(exchanges, SCALE))


def severity(*exchanges: Exchange) -> Severity | None:
    found = findings(*exchanges)
    return found[0].severity if found else None


def test_no_foreign_text_no_finding() -> None:
    assert findings(holding(), holding(number=2)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (foreign(Form.CODE, extent=16), Severity.LEAK),
        (foreign(Form.CODE, extent=16, altered=True), Severity.LEAK),
        (foreign(Form.CODE, extent=10, whole=False), Severity.LEAK),
        (foreign(Form.CODE, extent=8, whole=False), Severity.DEGRADED),
        (foreign(Form.PHRASE, extent=6), Severity.LEAK),
        (foreign(Form.PHRASE, extent=4, whole=False), Severity.DEGRADED),
        (foreign(Form.NAME, extent=1, request=None), Severity.DEGRADED),
        (foreign(Form.WORD, extent=1, request=None, whole=False), None),
    ],
)
def test_one_sighting_by_its_form_and_extent(text: ForeignText, expected: Severity | None) -> None:
    assert severity(holding(text)) is expected


def test_one_stray_private_word_is_no_finding() -> None:
    assert findings(holding(foreign(Form.WORD, extent=1, request=None, whole=False))) == []


def test_words_of_tenants_are_judged_against_phantoms() -> None:
    """Many words of one tenant and none of three times as many phantoms; then as chance would have it."""
    words = foreign(Form.WORD, extent=12, request=None)
    assert severity(holding(words)) is Severity.LEAK
    assert findings(holding(words, phantom_words=tuple(f"w{n}" for n in range(36)))) == []


def test_names_of_two_tenants_are_a_leak_unless_names_are_everywhere() -> None:
    names = [foreign(Form.NAME, extent=1, request=None, tenant=t) for t in (6, 7)]
    assert severity(holding(*names, names_seen=(1, 2))) is Severity.LEAK
    assert severity(holding(*names, names_seen=tuple(range(2_000)))) is not Severity.LEAK


def test_the_same_sighting_is_weaker_in_a_run_with_more_answers() -> None:
    text = foreign(Form.CODE, extent=9, whole=False)
    few = findings(holding(text))
    many = findings(holding(text), holding(number=2, group="control", code_windows=100_000))
    assert few[0].odds is not None
    assert many == [] or (many[0].odds or 1) > few[0].odds


def test_findings_are_per_group_and_say_whose_and_where() -> None:
    owner = exchange(7, group="victims", tenant=6)
    text = foreign(Form.CODE, at_tokens=1_234)
    found = findings(owner, holding(text, group="edge"), holding(text, number=2, group="window"))
    assert [(f.stratum, f.exchanges) for f in found] == [("edge", (1,)), ("window", (2,))]
    (line,) = found[0].evidence
    assert line == (
        "request 1 (10,000 tokens) holds text of tenant 6, request 7 (victims), from about token 1,234: "
        "a whole code"
    )
    assert found[0].rule == "isolation/foreign-text"


@pytest.mark.parametrize(
    ("owner", "reader", "said"),
    [
        (1, 0, ", sent as tenants.1 of the deployment file and read as tenants.0: a whole code"),
        (0, 0, "): a whole code"),
        (None, None, "): a whole code"),
    ],
)
def test_text_that_crossed_from_one_key_to_another_is_told_as_that(
    owner: int | None, reader: int | None, said: str
) -> None:
    text = foreign(Form.CODE, extent=16, request=9, tenant=7, at_tokens=None)
    owned = exchange(9, tenant=7, identity=owner)
    reading = holding(text).model_copy(update={"identity": reader})
    (found,) = findings(owned, reading)
    assert said in found.evidence[0]


def test_whole_and_partial_are_told_apart_and_the_strongest_comes_first() -> None:
    weak = foreign(Form.NAME, extent=1, request=None, tenant=9)
    part = foreign(Form.CODE, extent=9, whole=False, tenant=8, request=5)
    (found,) = findings(holding(weak, part, foreign(Form.CODE), foreign(Form.PHRASE, extent=14)))
    assert [line.rpartition(": ")[2] for line in found.evidence] == [
        "part of a code (9 of 16 characters)",
        "a whole code, a whole phrase (14 words)",
        "its name",
    ]


def test_a_code_of_an_older_run_is_told_as_that() -> None:
    old = foreign(Form.CODE, run=RUN - 99, tenant=None, request=3)
    now = begun(RUN - 99).timestamp() + 3 * 3_600
    (found,) = findings(holding(old).model_copy(update={"started_at": now}))
    assert found.severity is Severity.LEAK
    when = f"{begun(RUN - 99):%Y-%m-%d %H:%M} UTC"
    whose = f"the run of {when} ({RUN - 99:07x}), 3 hours before, request 3: a whole code"
    assert whose in found.evidence[0]


def test_an_unverified_code_is_a_warning_and_never_a_leak() -> None:
    for count in (1, 1_000):
        (found,) = findings(holding(unverified_codes=count))
        assert (found.rule, found.severity) == ("isolation/unverified-code", Severity.DEGRADED)
        assert found.odds is None


def test_all_forms_together_spend_one_in_a_million() -> None:
    assert detector.is_leak(2.19e-7)
    assert not detector.is_leak(2.3e-7)
    assert pytest.approx(odds.RUN_BUDGET) == 4 * odds.FORM_BUDGET + 2 * odds.MIX_UP_BUDGET


@given(
    extent=st.integers(8, 16),
    windows=st.integers(0, 10**6),
    more=st.integers(0, 10**6),
)
@settings(deadline=None, derandomize=True)
def test_more_characters_never_weaken_and_more_windows_never_strengthen(
    extent: int, windows: int, more: int
) -> None:
    def best(extent: int, windows: int) -> float:
        text = foreign(Form.CODE, extent=extent, whole=extent == 16)
        found = findings(holding(text, code_windows=windows))
        return found[0].odds or 0.0 if found else 1.0

    assert best(extent, windows) <= best(extent, windows + more)
    if extent < 16:
        assert best(extent + 1, windows) <= best(extent, windows)
