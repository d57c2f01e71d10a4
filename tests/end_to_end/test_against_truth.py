"""What kvcanary says, against what really happened in the lab: only the tests may look there."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.lab import Lab, ReadTruth, scenario_named
from kvcanary.probing.endpoint import Api, Endpoint
from kvcanary.record.exchange import Exchange, ForeignText, Form, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from kvcanary.verdict.claims import ExitCode, Status
from kvcanary.verdict.findings import Severity

CONTEXT = 16_384


@dataclass(frozen=True)
class Checked:
    """A judged run and the truth about each of its exchanges, by number."""

    record: RunRecord
    truth: dict[int, ReadTruth]

    def exchange(self, number: int) -> Exchange:
        return next(e for e in self.record.exchanges if e.number == number)

    def by_name(self, name: str | None) -> Exchange | None:
        return next((e for e in self.record.exchanges if e.name == name), None)


async def _check(
    scenario: str, folder: Path, *, front_door_only: bool, stream: bool, api: Api, seed: int
) -> Checked:
    box = Lab(
        scenario_named(scenario).scaled(context_tokens=CONTEXT),
        seed=seed,
        front_door_only=front_door_only,
    )
    async with box as lab:
        endpoint = Endpoint(f"{lab.url}/v1", lab.model_name, api=api, stream=stream)
        options = Options(
            record=folder / "record.jsonl",
            site_key=SiteKey(bytes(range(32))),
        )
        target = Target(f"lab:{scenario}", endpoint, CONTEXT)
        record = (await run_check(target, options)).record
        truth = {e.number: lab.truth.read(e.name) for e in record.exchanges}
    return Checked(record, {number: read for number, read in truth.items() if read})


def check(
    scenario: str,
    folder: Path,
    *,
    front_door_only: bool = False,
    stream: bool = True,
    api: Api = Api.CHAT,
    seed: int = 0,
) -> Checked:
    return asyncio.run(
        _check(scenario, folder, front_door_only=front_door_only, stream=stream, api=api, seed=seed)
    )


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return check("glm-5.3", tmp_path_factory.mktemp("sick"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return check("healthy", tmp_path_factory.mktemp("healthy"))


def attributions(checked: Checked) -> Iterator[tuple[Exchange, ForeignText]]:
    leaking = {
        number
        for finding in checked.record.findings
        if finding.severity is Severity.LEAK
        for number in finding.exchanges
    }
    for number in leaking:
        exchange = checked.exchange(number)
        for text in exchange.foreign:
            yield exchange, text


def test_the_sick_lab_fails_for_the_right_reasons(sick: Checked) -> None:
    rules = {finding.rule for finding in sick.record.findings}
    assert sick.record.verdict
    assert sick.record.verdict.exit_code is ExitCode.VIOLATION
    assert {
        "isolation/foreign-text",
        "ownership/labels-lost",
        "capacity/pool-below-context",
        "refusal/answered-over-limit",
    } <= rules


def second_hand(checked: Checked, reader: Exchange) -> Iterator[ForeignText]:
    """Foreign text of answers whose own pages the reader read: a leak can be read again."""
    for name in {page.writer for page in checked.truth[reader.number].pages}:
        writer = checked.by_name(name)
        if writer and writer.number != reader.number:
            yield from writer.foreign


def test_every_attribution_to_a_request_is_true(sick: Checked) -> None:
    coded = [(e, t) for e, t in attributions(sick) if t.request is not None]
    assert {t.form for _, t in coded} >= {Form.CODE, Form.PHRASE}
    first_hand = 0
    for exchange, text in coded:
        assert text.request is not None
        owner = sick.exchange(text.request)
        pages = sick.truth[exchange.number].pages
        positions = [at for page in pages for at in page.positions_of(owner.name)]
        if not positions:
            again = {t.request for t in second_hand(sick, exchange)}
            assert text.request in again, (
                f"request {exchange.number} read nothing of {owner.number}"
            )
            continue
        first_hand += 1
        assert text.at_tokens is not None
        # A page is 64 tokens, and words are a little longer than tokens: within 10 % and a page.
        nearest = min(abs(text.at_tokens - at) for at in positions)
        assert nearest <= 64 + 0.12 * text.at_tokens
    assert 2 * first_hand > len(coded)


def test_every_attribution_to_a_tenant_is_true(sick: Checked) -> None:
    named = [(e, t) for e, t in attributions(sick) if t.form is Form.NAME]
    assert named
    for exchange, text in named:
        pages = sick.truth[exchange.number].pages
        writers = {page.writer for page in pages} | {name for p in pages for name, _ in p.also}
        tenants = {owner.tenant for name in writers if (owner := sick.by_name(name))}
        again = {t.tenant for t in second_hand(sick, exchange)}
        assert text.tenant in tenants | again


def test_answers_called_foreign_or_lost_read_pages_of_others(sick: Checked) -> None:
    """What counters say of a stratum is said of the honest request beside it, too."""
    telling = ("isolation/", "ownership/", "refusal/")
    accused = {n for f in sick.record.findings if f.rule.startswith(telling) for n in f.exchanges}
    assert len(accused) >= 6
    for number in accused:
        assert sick.truth[number].foreign_pages


def test_answers_not_accused_read_only_their_own_pages(sick: Checked) -> None:
    """But for the text that is sent twice: the second finds the first one's pages in the prefix cache."""
    accused = {n for f in sick.record.findings for n in f.exchanges}
    numbers = [e.number for e in sick.record.exchanges]
    for exchange in sick.record.exchanges:
        twice = numbers.count(exchange.number) > 1
        if exchange.answered and not twice and exchange.number not in accused:
            assert not sick.truth[exchange.number].foreign_pages


def test_the_bystanders_were_right(sick: Checked) -> None:
    bystanders = [e for e in sick.record.exchanges if e.purpose is Purpose.BYSTANDER]
    assert bystanders
    assert all(e.kept for e in bystanders)


def test_the_healthy_lab_passes_without_a_finding(healthy: Checked) -> None:
    assert healthy.record.findings == ()
    assert healthy.record.verdict
    assert healthy.record.verdict.exit_code is ExitCode.PASS


def test_what_a_healthy_run_calls_tested_was_exposed(healthy: Checked) -> None:
    """And the stated exposure, a lower bound, is never above the truth."""
    verdict = healthy.record.verdict
    assert verdict
    readers = [s for s in verdict.strata if s.purpose == "reader" and s.measured]
    assert readers
    for stratum in readers:
        assert stratum.exposure == "measured"
        assert stratum.exposed_tokens
        for exchange in healthy.record.exchanges:
            if exchange.group == stratum.name and exchange.answered:
                truth = healthy.truth[exchange.number]
                exposed = truth.exposed_pages * truth.page_tokens
                assert exposed >= stratum.exposed_tokens - truth.page_tokens
                assert not truth.foreign_pages


def test_the_patched_lab_fails_on_capacity_alone(tmp_path: Path) -> None:
    checked = check("glm-5.3-patched", tmp_path)
    verdict = checked.record.verdict
    assert verdict
    assert verdict.exit_code is ExitCode.VIOLATION
    assert {f.severity for f in checked.record.findings} == {Severity.CAPACITY}
    statuses = {claim.name.value: claim.status for claim in verdict.claims}
    assert statuses["refusal"] is Status.PASS
    assert statuses["isolation"] is Status.PASS
    assert statuses["capacity"] is Status.FAIL
    over = [e for e in checked.record.exchanges if e.group in ("window", "edge")]
    assert {e.outcome for e in over} == {"refused"}
    assert all(e.refusal and e.refusal.limit_tokens for e in over)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", list(Api))
@pytest.mark.parametrize(
    ("scenario", "code"), [("glm-5.3", ExitCode.VIOLATION), ("healthy", ExitCode.PASS)]
)
def test_front_door_alone_is_enough(
    scenario: str, code: ExitCode, api: Api, stream: bool, tmp_path: Path
) -> None:
    checked = check(scenario, tmp_path, front_door_only=True, stream=stream, api=api)
    assert checked.record.facts
    assert checked.record.facts.workers == ()
    assert checked.record.verdict
    assert checked.record.verdict.exit_code is code
    severities = {f.severity for f in checked.record.findings}
    assert (Severity.LEAK in severities) is (scenario == "glm-5.3")


@pytest.mark.parametrize("seed", range(1, 9))
def test_healthy_labs_of_many_seeds_have_no_finding(seed: int, tmp_path: Path) -> None:
    checked = check("healthy", tmp_path, seed=seed)
    assert checked.record.findings == ()
    assert checked.record.verdict
    assert checked.record.verdict.exit_code is ExitCode.PASS
