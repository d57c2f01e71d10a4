"""Cases of the selftest: which there are, and one of them run against a lab in this process."""

import asyncio
import dataclasses
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.errors import KvcanaryError, UsageError
from kvcanary.lab import Lab, Scenario, WallClock, faults, scenario_named, with_fault, with_habit
from kvcanary.probing.endpoint import Endpoint
from kvcanary.record.journal import PARTIAL, load
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from kvcanary.selftest.case import Case, Kind, Terms
from kvcanary.selftest.look_alikes import look_alikes
from kvcanary.selftest.matrix import Result
from kvcanary.selftest.score import scored

SPEED = 20.0
"""Lab seconds in a second: only the order of its waits matters here."""


def chosen(fault_texts: Sequence[str], look_alike_keys: Sequence[str]) -> tuple[Case, ...]:
    """The cases named; without any name all there are. A fault may have a rate: ``KEY[:RATE][@TOKENS]``.

    Raises UsageError for a name that there is not.
    """
    innocent = {case.key: case for case in look_alikes()}
    if not (fault_texts or look_alike_keys):
        return (*(_fault(fault.key.value) for fault in faults()), *innocent.values())
    unknown = [key for key in look_alike_keys if key not in innocent]
    if unknown:
        raise UsageError(
            f"There is no look-alike {unknown[0]!r}; there are: {', '.join(innocent)}."
        )
    return (*map(_fault, fault_texts), *(innocent[key] for key in look_alike_keys))


def _fault(text: str) -> Case:
    with_fault(scenario_named("healthy"), text)  # raises UsageError, with the nearest known name
    key = text.partition("@")[0].partition(":")[0]
    fault = next(f for f in faults() if f.key == key)
    return Case(
        key=text, kind=Kind.FAULT, what=fault.wrong, mechanism=fault.mechanism, faults=(text,)
    )


def run_case(case: Case, terms: Terms) -> Result:
    """One run against a lab of its own, and its score. Whatever goes wrong is told in the result."""
    began = time.process_time()
    try:
        with TemporaryDirectory(prefix="kvcanary-selftest-") as folder:
            record, hit = asyncio.run(_run(case, terms, Path(folder) / "record.jsonl"))
        return scored(case, record, hit, time.process_time() - began)
    except KvcanaryError as error:
        return Result(case=case, error=str(error))


def _lab(case: Case, terms: Terms) -> Lab:
    scenario: Scenario = dataclasses.replace(
        scenario_named(case.scenario), page_tokens=terms.page_tokens
    ).scaled(context_tokens=terms.context_tokens)
    for habit in case.habits:
        scenario = with_habit(scenario, habit)
    for fault in case.faults:
        scenario = with_fault(scenario, fault)
    return Lab(scenario, seed=terms.seed, clock=WallClock(SPEED))


async def _run(case: Case, terms: Terms, path: Path) -> tuple[RunRecord, frozenset[str]]:
    """The record, whole or as far as time allowed, and the names of the exchanges that were hit."""
    async with _lab(case, terms) as lab:
        target = Target(
            f"lab:{case.scenario}",
            Endpoint(f"{lab.url}/v1", lab.model_name),
            terms.context_tokens,
            context_source="the lab's scenario",
        )
        try:
            async with asyncio.timeout(terms.case_seconds):
                record = (await run_check(target, _options(case, terms, path))).record
        except TimeoutError:
            record = load(path.with_name(path.name + PARTIAL))
        keys = [text.partition("@")[0].partition(":")[0] for text in case.faults]
        hit = (e.request for e in lab.truth.ledger if any(e.hit_by(key) for key in keys))
        return record, frozenset(hit)


def _options(case: Case, terms: Terms, path: Path) -> Options:
    """The same text for the same seed, and another for each case."""
    drawn = hashlib.blake2b(f"{terms.seed}/{case.key}".encode(), digest_size=20).digest()
    return Options(
        suite=terms.suite,
        deadline_seconds=terms.deadline_seconds,
        record=path,
        site_key=SiteKey(hashlib.blake2b(drawn, digest_size=32).digest()),
        identity=RunIdentity(int.from_bytes(drawn[16:], "big") % (1 << 26), drawn[:16]),
    )
