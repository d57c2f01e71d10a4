"""Cases of the selftest: which there are, and one of them run against a lab in this process."""

import asyncio
import dataclasses
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.errors import KvcanaryError, UsageError
from kvcanary.lab import Lab, Scenario, WallClock, faults, scenario_named, with_fault, with_habit
from kvcanary.probing.endpoint import Endpoint, Identity, SecretKey
from kvcanary.probing.grammar import load_probes, load_suite
from kvcanary.record.journal import PARTIAL, load
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from kvcanary.selftest.case import BY_ORDER, BY_TIME, Case, Kind, Terms
from kvcanary.selftest.look_alikes import look_alikes
from kvcanary.selftest.matrix import Result, together
from kvcanary.selftest.score import scored

SALTED = ("cache-ignores-salt", "cache-timing")
"""Faults that break a promise, where there is one."""
LOOK_ALIKE_PROBES = 2
"""Probes of the second suite that a look-alike gets, another two each time; all of them ``to_the_end``."""


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
        key=text,
        kind=Kind.FAULT,
        what=fault.wrong,
        mechanism=fault.mechanism,
        blind=fault.blind,
        faults=(text,),
        salts=key in SALTED,
        speed=BY_TIME if fault.by_time else BY_ORDER,
    )


def run_case(case: Case, terms: Terms, folder: Path) -> Result:
    """A run against a lab of its own, and its score; a second one for a fault by which no claim failed, and for
    a look-alike.

    Records go into ``folder``. Whatever goes wrong is told in the result.
    """
    began = time.process_time()
    try:
        result = _scored(case, terms, folder, terms.probes)
        failed = any(d.fails for d in result.catching)
        besides = () if failed or case.blind else _besides(case, terms)
        if besides:
            result = together(result, _scored(case, terms, folder, besides), besides)
    except KvcanaryError as error:
        return Result(case=case, error=str(error))
    return result.model_copy(update={"cpu_seconds": time.process_time() - began})


def _besides(case: Case, terms: Terms) -> tuple[str, ...]:
    """Probes of the fault's mechanism that only the other suite has; for a look-alike some of them, or all."""
    if terms.besides is None or terms.probes:
        return ()
    sent = load_suite(terms.suite).probes
    others = [name for name in load_suite(terms.besides).probes if name not in sent]
    if case.kind is Kind.FAULT:
        return tuple(p.id for p in load_probes(others) if case.mechanism in p.mechanism)
    if terms.to_the_end or len(others) <= LOOK_ALIKE_PROBES:
        return tuple(others)
    keys = [innocent.key for innocent in look_alikes()]
    first = LOOK_ALIKE_PROBES * (keys.index(case.key) + terms.seed)
    return tuple(others[(first + more) % len(others)] for more in range(LOOK_ALIKE_PROBES))


def _scored(case: Case, terms: Terms, folder: Path, probes: tuple[str, ...]) -> Result:
    name = case.key.replace(":", "-").replace("/", "-") + ("-besides" if probes else "")
    record, hit = asyncio.run(_run(case, terms, folder / f"{name}.jsonl", probes))
    return scored(case, record, hit)


def _lab(case: Case, terms: Terms) -> Lab:
    scenario: Scenario = dataclasses.replace(
        scenario_named(case.scenario), page_tokens=terms.page_tokens
    ).scaled(context_tokens=terms.context_tokens)
    for habit in case.habits:
        scenario = with_habit(scenario, habit)
    for fault in case.faults:
        scenario = with_fault(scenario, fault)
    return Lab(scenario, seed=terms.seed, clock=WallClock(case.speed))


async def _run(
    case: Case, terms: Terms, path: Path, probes: tuple[str, ...]
) -> tuple[RunRecord, frozenset[str]]:
    """The record, whole or as far as time allowed, and the names of the exchanges that were hit."""
    async with _lab(case, terms) as lab:
        target = Target(
            f"lab:{case.scenario}",
            Endpoint(f"{lab.url}/v1", lab.model_name),
            terms.context_tokens,
            context_source="the lab's scenario",
            identities=_identities(case),
        )
        try:
            async with asyncio.timeout(terms.case_seconds):
                record = (await run_check(target, _options(case, terms, path, probes))).record
        except TimeoutError:
            record = load(path.with_name(path.name + PARTIAL))
        keys = [text.partition("@")[0].partition(":")[0] for text in case.faults]
        hit = (e.request for e in lab.truth.ledger if any(e.hit_by(key) for key in keys))
        return record, frozenset(hit)


def _identities(case: Case) -> tuple[Identity, ...]:
    """Two tenants with salts, where they are promised."""
    names = ("a", "b") if case.salts else ()
    return tuple(Identity(cache_salt=SecretKey(f"salt-of-{name}")) for name in names)


def _options(case: Case, terms: Terms, path: Path, probes: tuple[str, ...]) -> Options:
    """The same text for the same seed, and another for each case."""
    drawn = hashlib.blake2b(f"{terms.seed}/{path.stem}".encode(), digest_size=20).digest()
    return Options(
        suite=terms.suite,
        probes=probes,
        deadline_seconds=terms.deadline_seconds,
        stop_when_proven=case.kind is Kind.FAULT and not terms.to_the_end,
        record=path,
        site_key=SiteKey(hashlib.blake2b(drawn, digest_size=32).digest()),
        identity=RunIdentity(int.from_bytes(drawn[16:], "big") % (1 << 26), drawn[:16]),
    )
