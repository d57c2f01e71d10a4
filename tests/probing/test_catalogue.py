"""The steps of the catalogue: what they plan, what it costs, what is wrong with them, and the shipped ones."""

import json
from pathlib import Path

import pytest

from kvcanary.deployment.facts import Facts, Role
from kvcanary.errors import ConfigError
from kvcanary.probing.buying import NO_LIMIT, Budget, buy, plan_note
from kvcanary.probing.endpoint import Api, Endpoint, PlainText, Request, body_of
from kvcanary.probing.estimate import estimate
from kvcanary.probing.grammar import Probe, load_probe, load_probes, load_suite, shipped
from kvcanary.probing.manners import overrides_of
from kvcanary.probing.plan import make_plan
from kvcanary.probing.planned import Pad, Plan
from kvcanary.probing.roles import READERS
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Purpose
from kvcanary.record.manner import Feature, Manner, Spoilt
from tests.builders import facts, worker

CONTEXT = 16_384
USUAL = Calibration(base_tokens=240, chapter_tokens=540.0, fitted_tokens=9_000)
HEAD = (
    "id: mine\ntitle: Mine\nmechanism: [page-boundary]\nwhy: w\nblind_to: b\noutput: 64\nsteps:\n"
)
COLD = "  - {do: read, group: cold, count: 4, tokens: 1000}\n"


def deployment(prefill: int = 40_000) -> Facts:
    return facts(
        worker(Role.PREFILL, prefill, context=CONTEXT),
        worker(Role.DECODE, 40_000, context=CONTEXT),
        context=CONTEXT,
    )


def probe(folder: Path, steps: str) -> Probe:
    path = folder / "mine.yaml"
    path.write_text(HEAD + steps)
    return load_probe(str(path))


def planned(folder: Path, steps: str) -> Plan:
    return make_plan([probe(folder, steps)], deployment(), CONTEXT, USUAL, 4, 0)


def test_the_same_texts_again_as_another_tenant(tmp_path: Path) -> None:
    plan = planned(tmp_path, COLD + "  - {do: read, group: other, again: cold, tenant: other}\n")
    cold, other = plan.stages
    for first, visit in zip(cold.exchanges, other.exchanges, strict=True):
        assert visit.again == first.number != visit.number
        assert (visit.tenant, visit.asked, visit.purpose) == (
            first.tenant,
            first.asked,
            Purpose.VISITOR,
        )
        assert visit.manner.sent_as in set(READERS) - {first.tenant}


@pytest.mark.parametrize(
    ("pad", "counted", "target"),
    [
        (Pad(), 1_003, 1_003),
        (Pad(multiple=16), 1_003, 1_008),
        (Pad(multiple=16), 1_008, 1_008),
        (Pad(multiple=16, plus=-1), 1_003, 1_007),
        (Pad(exactly=2_000, plus=1), 1_003, 2_001),
    ],
)
def test_padding_comes_to_the_token(pad: Pad, counted: int, target: int) -> None:
    assert pad.target(counted) == target


def test_a_text_is_not_bought_without_its_first_visit(tmp_path: Path) -> None:
    steps = COLD + "  - {do: read, group: warm, again: cold, danger: 50}\n"
    plan = planned(tmp_path, steps)
    for tokens in range(500, 9_000, 700):
        bought = buy(plan, Budget(tokens=tokens), USUAL)
        numbers = {e.number for e in bought.exchanges}
        assert all(e.again is None or e.again in numbers for e in bought.exchanges)


def test_rounds_go_on_with_tenants_and_questions(tmp_path: Path) -> None:
    steps = """\
  - do: repeat
    times: 6
    steps:
      - {do: read, group: first, count: 1, tokens: 1000}
      - {do: read, group: second, again: first}
"""
    plan = planned(tmp_path, steps)
    firsts = [e for e in plan.exchanges if e.again is None]
    assert [s.group for s in plan.stages] == ["first", "second"] * 6
    assert {(e.tenant, e.asked) for e in firsts[:3]} == {(e.tenant, e.asked) for e in firsts[3:]}
    assert len({e.tenant for e in firsts}) == len({e.asked for e in firsts}) == 3
    assert [e.again for e in plan.exchanges if e.again is not None] == [e.number for e in firsts]
    note = plan_note(plan, USUAL, NO_LIMIT, ())
    assert [(s.stratum, s.requests) for s in note.stages] == [("first", 6), ("second", 6)]


def test_beside_each_spoilt_request_goes_an_honest_one(tmp_path: Path) -> None:
    (stage,) = planned(tmp_path, "  - {do: refuse, group: beside, rounds: 2}\n").stages
    spoilt = stage.exchanges[::2]
    assert [e.manner.spoilt for e in spoilt] == [*Spoilt, *Spoilt]
    assert {e.purpose for e in spoilt} == {Purpose.SPOILT}
    assert {e.purpose for e in stage.exchanges[1::2]} == {Purpose.READER}
    bought = buy(
        planned(tmp_path, "  - {do: refuse, group: beside}\n"), Budget(tokens=6_000), USUAL
    )
    assert 0 < len(bought.exchanges) < 24
    assert [e.purpose for e in bought.exchanges[::2]] == [Purpose.SPOILT] * (
        len(bought.exchanges) // 2
    )


def test_only_what_is_asked_for_overfills_the_pool(tmp_path: Path) -> None:
    wide = "  - {do: read, group: g, count: 16, at_once: 16, tokens: reach / 2%s}\n"
    (within,) = planned(tmp_path, wide % "").stages
    (beyond,) = planned(tmp_path, wide % ", overfill: true").stages
    each = within.exchanges[0].tokens + within.exchanges[0].max_tokens
    assert within.in_flight * each <= 40_000 < beyond.in_flight * each
    assert beyond.crowd


def test_as_many_as_fill_a_pool(tmp_path: Path) -> None:
    (stage,) = planned(
        tmp_path, "  - {do: read, group: g, tokens: 4000, total: 1.2 * prefill.pool}\n"
    ).stages
    assert sum(e.tokens for e in stage.exchanges) >= 48_000


def test_features_that_change_the_answer_are_a_stratum_of_their_own(tmp_path: Path) -> None:
    (stage,) = planned(
        tmp_path, "  - {do: read, group: g, count: 4, tokens: 1000, features: [plain, json]}\n"
    ).stages
    assert [(e.group, e.purpose) for e in stage.exchanges] == [
        ("g", Purpose.READER),
        ("g-with", Purpose.FEATURE),
    ] * 2


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("  - {do: read, group: g}\n", ("one of `tokens`",)),
        (COLD + "  - {do: read, group: g, again: could}\n", ("no earlier step", "`cold`")),
        ("  - {do: read, group: g, again: g}\n", ("no earlier step",)),
        (COLD + "  - {do: read, group: g, tokens: 9, again: cold}\n", ("one of `tokens`",)),
        ("  - {do: read, group: g, tokens: 900, multiple: page}\n", ("belong to `again`",)),
        (COLD + "  - {do: read, group: g, again: cold, plus: 1}\n", ("`plus` belongs",)),
        (COLD + "  - {do: read, group: g, again: cold, control: true}\n", ("no control",)),
        (COLD + "  - {do: read, group: g, again: cold, total: 9}\n", ("`total` belongs",)),
        ("  - {do: refuse, group: g, kinds: [temprature]}\n", ("temperature",)),
        ("  - {do: refuse, group: spoilt}\n", ("every run has",)),
    ],
)
def test_what_is_wrong_with_a_step_is_said(
    tmp_path: Path, steps: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as error:
        probe(tmp_path, steps)
    assert all(word in str(error.value) for word in words), error.value


# -- on the wire -----------------------------------------------------------------------------------


def body(manner: Manner, api: Api) -> dict[str, object]:
    request = Request(
        "n",
        PlainText("text"),
        9,
        "u",
        whole=manner.feature is Feature.WHOLE,
        overrides=overrides_of(manner, api, "tiny"),
    )
    pieces = body_of(Endpoint("http://127.0.0.1:1/v1", "tiny", api), request).pieces()
    found: dict[str, object] = json.loads(b"".join(map(bytes, pieces)))
    return found


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("spoilt", Spoilt)
def test_what_is_spoilt_differs_in_that_alone(api: Api, spoilt: Spoilt) -> None:
    usual, sent = body(Manner(), api), body(Manner(spoilt=spoilt), api)
    different = {name for name in usual | sent if usual.get(name) != sent.get(name)}
    assert 1 <= len(different) <= 2
    assert not different & {"messages", "prompt", "user", "stream"}


@pytest.mark.parametrize("feature", Feature)
def test_features_leave_the_prompt_alone(feature: Feature) -> None:
    usual, sent = body(Manner(), Api.CHAT), body(Manner(feature=feature), Api.CHAT)
    assert sent["messages"] == usual["messages"]
    assert sent["stream"] is (feature is not Feature.WHOLE)
    assert ("stream_options" in sent) is (feature is not Feature.WHOLE)


# -- what is shipped -------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [2_048, 4_096, 131_072, 1_048_576])
@pytest.mark.parametrize("name", shipped("suites"))
def test_suites_hold_from_a_small_context_to_a_million(name: str, context: int) -> None:
    """No stratum is left out for want of room."""
    suite = load_suite(name)
    note = estimate(suite, load_probes(suite.probes), context, "given", 4, NO_LIMIT)
    assert [s for s in note.skipped if "room" in s or "unknown" in s] == []
    assert note.requests >= 6


@pytest.mark.parametrize("name", shipped("probes"))
@pytest.mark.parametrize("prefill", [10_000, 40_000])
def test_every_probe_can_be_planned_and_says_what_it_is_for(name: str, prefill: int) -> None:
    loaded = load_probe(name)
    plan = make_plan([loaded], deployment(prefill), CONTEXT, USUAL, 4, 0)
    assert loaded.references
    numbers = [e.number for e in plan.exchanges]
    assert len(numbers) == len(set(numbers))
    assert loaded.blind_to.strip()


def test_what_is_hard_on_a_deployment_is_not_for_production() -> None:
    hard = {"saturation", "backlog", "churn", "crowd", "soak", "return"}
    for name in ("production", "smoke", "check", "predeploy"):
        assert not hard & set(load_suite(name).probes)
    assert hard <= set(load_suite("soak").probes)
