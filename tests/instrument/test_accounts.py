"""Accounts across workers on the lab: the incident shows in them, good deployments do not, noise is told."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest

from kvcanary.detect.handoff import Sum, accounts
from kvcanary.lab import Lab
from tests.instrument.lab_runs import Ran, Setup, finished, ran, run_in

BOTH = {"accounting/prefill-decode", "accounting/refusal-not-terminal"}


def test_the_incident_shows_in_the_counters() -> None:
    sick = ran(Setup("glm-5.3", context=8_192, suite="check"))
    assert sick.rules >= BOTH
    assert sick.claim("accounting").status == "fail"
    found = [f for f in sick.record.findings if f.rule in BOTH]
    assert len(found) == 2, "one finding for each rule, whatever strata showed it"
    for one in found:
        accused = {line.split("`")[1] for line in one.evidence}
        assert accused == {"window", "edge", "confirmation"}
        assert one.stratum == "accounting"


@pytest.mark.parametrize(
    ("scenario", "habits"),
    [
        ("glm-5.3-patched", ()),
        ("healthy", ()),
        ("healthy", ("thinks",)),
        ("2x2", ()),
        ("dp4", ()),
    ],
)
def test_good_counters_agree_in_every_stage(scenario: str, habits: tuple[str, ...]) -> None:
    run = ran(Setup(scenario, habits=habits, suite="check", context=8_192))
    assert not run.rules & BOTH
    assert run.claim("accounting").status == "pass"
    results = {a.window.group: a.result for a in accounts(run.record.windows, run.record.exchanges)}
    assert results.pop("victims") is Sum.NO_ACCOUNT
    assert set(results.values()) == {Sum.AGREES}
    assert all(window.quiet for window in run.record.windows)


@pytest.mark.parametrize(
    "habit", ["restart-after=16", "response-cache", "fallback=other@1000", "no-usage"]
)
def test_what_the_counters_cannot_explain_accuses_nobody(habit: str) -> None:
    run = ran(Setup("healthy", habits=(habit,)))
    assert not run.rules & BOTH
    if habit != "response-cache":
        assert run.claim("accounting").status == "inconclusive"


async def noise(lab: Lab, tokens: int) -> None:
    """One request after another."""
    body: dict[str, Any] = {"model": lab.model_name, "prompt": "noise " * tokens, "max_tokens": 3}
    async with httpx.AsyncClient() as client:
        while True:
            await client.post(f"{lab.url}/v1/completions", json=body, timeout=60)


@pytest.mark.parametrize("scenario", ["healthy", "glm-5.3-patched"])
def test_beside_other_traffic_nothing_is_known_and_nobody_accused(scenario: str) -> None:
    setup = Setup(scenario, suite="check" if scenario != "healthy" else "smoke")

    async def whole() -> Ran:
        async with setup.lab() as lab:
            beside = asyncio.create_task(noise(lab, tokens=500))
            try:
                return Ran(await run_in(lab, setup), lab)
            finally:
                beside.cancel()
                with suppress(asyncio.CancelledError, httpx.HTTPError):
                    await beside

    run = finished(whole())
    assert not run.rules & BOTH
    claim = run.claim("accounting")
    assert claim.status == "inconclusive"
    assert "other traffic" in claim.text
