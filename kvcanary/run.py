"""One run, from an endpoint to a judged record: what every command and plugin calls."""

import asyncio
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import kvcanary
from kvcanary.canary.codes import CodeMaker
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import RunIdentity, Writer
from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.run_number import new_run_number
from kvcanary.canary.sitekey import SiteKey, load_or_create
from kvcanary.canary.tenants import deal
from kvcanary.deployment.advisories import shipped_advisories
from kvcanary.deployment.discovery import (
    METADATA_SECONDS,
    model_list,
    raise_unless_asked,
)
from kvcanary.deployment.facts import Facts
from kvcanary.deployment.gauge import fullest_pool, make_gauge
from kvcanary.deployment.lock import only_run
from kvcanary.deployment.survey import facts_of
from kvcanary.deployment.target import Target
from kvcanary.engines import openai
from kvcanary.errors import KvcanaryError, Unauthorized, UsageError
from kvcanary.places import state_folder
from kvcanary.probing.backoff import Backoff
from kvcanary.probing.buying import NO_LIMIT, Budget
from kvcanary.probing.client import Client
from kvcanary.probing.courier import Limits
from kvcanary.probing.endpoint import UNNAMED
from kvcanary.probing.events import Listener, Silence
from kvcanary.probing.grammar import Probe, Suite, fingerprint, load_probes, load_suite
from kvcanary.probing.identities import Identities
from kvcanary.probing.intrusive import intrusive
from kvcanary.probing.known import know
from kvcanary.probing.outcome import Reason
from kvcanary.probing.pacing import Pacer
from kvcanary.probing.roles import MOST_AT_ONCE, TENANTS
from kvcanary.probing.runner import Runner
from kvcanary.probing.sender import Sender
from kvcanary.probing.sources import sources
from kvcanary.probing.stopped import Stopped
from kvcanary.record.baseline import Baseline
from kvcanary.record.exchange import Exchange
from kvcanary.record.journal import Journal
from kvcanary.record.run import RunInfo, RunRecord
from kvcanary.telemetry.gpus import GpuWatch
from kvcanary.telemetry.meter import make_meter, short_names
from kvcanary.telemetry.sampler import Sampler
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge

DEFAULT_CONTACT = "whoever runs this endpoint"
_CONTACT = re.compile(r"[A-Za-z0-9 @._+/:-]{1,80}")


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may choose about a run."""

    suite: str = "check"
    probes: tuple[str, ...] = ()
    """Probes to run instead of the suite's."""
    concurrency: int = 4
    deadline_seconds: float = 900.0
    contact: str = DEFAULT_CONTACT
    budget: Budget = NO_LIMIT
    """On the command line; where it says nothing, the suite's own holds."""
    only_plan: bool = False
    baseline: Baseline | None = None
    """An earlier run to compare the deployment with."""
    record: Path | None = None
    site_key: SiteKey | None = field(default=None, repr=False)
    identity: RunIdentity | None = field(default=None, repr=False)
    """Text of an earlier run, to replay it word for word."""
    known: tuple[RunRecord, ...] = field(default=(), repr=False)
    """Older runs of this site, to find parts of their markers."""
    resume: RunRecord | None = field(default=None, repr=False)
    """A run that was cut off, to go on with."""
    stop_when_proven: bool = False
    """End there, also where the suite would go on."""
    turn: int = 0
    """Runs of this kind before: which of a step's lengths in turn is due."""
    allow_intrusive: bool = False
    """Whether intrusive probes may run in a suite that is for deployments which serve others."""
    again: tuple[Exchange, ...] = ()
    """Exchanges of an earlier run to send again, instead of planning."""
    replays: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A judged record and where it lies; ``record_error``: why it could not be written to the end."""

    record: RunRecord
    path: Path
    record_error: str | None


def new_identity(now: float) -> RunIdentity:
    """A new run's number and the nonce of its text."""
    return RunIdentity(new_run_number(now), secrets.token_bytes(16))


def default_record_path(identity: RunIdentity, now: float) -> Path:
    """Where a record goes unless told otherwise: the user's state folder."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return state_folder() / "runs" / f"{stamp}-{identity.number:07x}.jsonl"


async def resolve_model(target: Target) -> Target:
    """The target with its model: the one named, or the only one served.

    Raises UsageError when there is a choice or none can be seen, Unreachable or Unauthorized when nobody
    could be asked.
    """
    endpoint = target.endpoint
    if endpoint.model != UNNAMED:
        return target
    async with Client(endpoint) as client:
        listing = await model_list(client)
    served = openai.models(listing.value)
    if len(served) == 1:
        return replace(target, endpoint=replace(endpoint, model=served[0].name))
    raise_unless_asked(endpoint, listing)
    seen = f"{len(served)} models are" if served else "no list of models is"
    raise UsageError(f"Say which model to test with --model: {seen} served at {endpoint.base_url}.")


async def run_check(target: Target, options: Options, listener: Listener | None = None) -> Result:
    """Run a suite against a deployment.

    Raises KvcanaryError when nothing can be run. Cancellation leaves a valid partial record.
    """
    listener = listener or Silence()
    endpoint = target.endpoint
    if not _CONTACT.fullmatch(options.contact):
        raise UsageError("--contact takes up to 80 letters, digits, spaces and @._+/:- only.")
    if not 0 < options.deadline_seconds < math.inf:
        raise UsageError("--deadline takes a number of seconds above 0, and has an end.")
    suite = load_suite(options.suite)
    references = options.probes or suite.probes
    probes = load_probes(references)
    if suite.beside_traffic and not options.allow_intrusive:
        _nothing_intrusive(suite, probes)
    site_key = options.site_key or load_or_create()
    now = time.time()
    identity = options.identity or new_identity(now)
    words = lexicon()
    cast = deal(site_key, identity.nonce, TENANTS, words)
    identities = Identities(endpoint, target.identities)
    path = options.record or default_record_path(identity, now)
    info = RunInfo(
        kvcanary_version=kvcanary.__version__,
        run=identity.number,
        nonce=identity.nonce.hex(),
        site_key=site_key.fingerprint(),
        started_at=now,
        target=target.name,
        model=endpoint.model,
        api=endpoint.api.value,
        stream=endpoint.stream,
        suite=suite.id,
        requires=suite.requires,
        bound=suite.bound,
        context_tokens=target.context_tokens,
        concurrency=options.concurrency,
        deadline_seconds=options.deadline_seconds,
        probes=tuple(probe.id for probe in probes),
        grammar=fingerprint(suite, probes),
        sources=sources(options.suite, probes, references),
        turn=options.resume.info.turn if options.resume else options.turn,
        budget_tokens=options.budget.tokens,
        budget_seconds=options.budget.seconds,
        tokens_per_minute=options.budget.tokens_per_minute,
        contact=options.contact,
        waivers=target.waivers,
        replays=options.replays,
        known=tuple(record.info.run for record in options.known),
        tenants=tuple(tenant.name for tenant in cast.tenants),
        separation=identities.separation(),
    )
    if any(record.info.site_key != info.site_key for record in options.known):
        raise UsageError(
            "A record given with --known was made with another site key: its markers cannot be written again "
            "here. Set KVCANARY_SITE_KEY_FILE to the key it was made with."
        )
    if options.resume:
        _same_run(options.resume.info, info)
    with only_run(endpoint.base_url, state_folder() / "locks"), Journal(path) as journal:
        journal.append("info", info)
        if options.baseline:
            journal.append("baseline", options.baseline)
        codes = CodeMaker(site_key)
        recogniser = Recogniser(codes, words, cast)
        know(recogniser, codes, options.known, identity.number)
        writer = Writer(site_key, codes, words, identity, options.contact)
        async with Client(endpoint, concurrency=max(MOST_AT_ONCE, options.concurrency)) as client:
            sender = Sender(
                client=client,
                identities=identities,
                writer=writer,
                cast=cast,
                recogniser=recogniser,
                journal=journal,
                listener=listener,
                pacer=Pacer(options.budget.tokens_per_minute),
            )
            await _send_all(sender, suite, probes, target, options)
        if not options.only_plan:
            conclude(journal, suite.requires)
        journal.complete()
    return Result(journal.record, journal.written_path, journal.error)


def _nothing_intrusive(suite: Suite, probes: Sequence[Probe]) -> None:
    """What customers would feel needs somebody's leave."""
    for probe in probes:
        if felt := intrusive(probe):
            raise UsageError(
                f"The suite `{suite.id}` runs beside real traffic, and the probe `{probe.id}` would be felt "
                f"there: {felt}. Leave it out, or allow it with --allow-intrusive."
            )


SAME = {
    "target": "target",
    "model": "model",
    "suite": "suite",
    "probes": "probes",
    "api": "--api",
    "stream": "--stream/--no-stream",
    "context_tokens": "--context",
    "concurrency": "--concurrency",
    "deadline_seconds": "--deadline",
    "budget_tokens": "--tokens",
    "budget_seconds": "--minutes (seconds)",
    "tokens_per_minute": "--tpm",
    "contact": "--contact",
    "tenants": "tenants",
    "separation": "identities of tenants",
    "requires": "required claims",
    "bound": "bound",
}
"""What two parts of one run have in common, by field of its info, in the words of the command line."""


def _same_run(earlier: RunInfo, now: RunInfo) -> None:
    """A run goes on where it began, or its two parts would speak of different things."""
    for field_name, what in SAME.items():
        was, given = getattr(earlier, field_name), getattr(now, field_name)
        if was != given:
            raise UsageError(
                f"The run to go on with had the {what} {_told(was)}, not {_told(given)}: give the same target "
                "and options."
            )
    if earlier.grammar != now.grammar:
        raise UsageError(
            "The run to go on with was made with another version of its suite or probes: they have been "
            "edited since, or kvcanary is another."
        )


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


async def _send_all(
    sender: Sender, suite: Suite, probes: Sequence[Probe], target: Target, options: Options
) -> None:
    journal = sender.journal
    try:
        sender.served = await _served(sender.client, options)
        await _keys_are_accepted(sender.client, target, options)
        async with GpuWatch(sender.client, target.gpus, target.prometheus) as gpus:
            await _send_and_watch(sender, suite, probes, target, options, gpus)
    except Stopped as stopped:
        journal.append("stopped", str(stopped))
    except KvcanaryError as error:
        journal.append("stopped", str(error))
        raise
    except asyncio.CancelledError:
        journal.append("stopped", "interrupted")
        raise
    finally:
        journal.append("scale", sender.scale())


async def _send_and_watch(
    sender: Sender,
    suite: Suite,
    probes: Sequence[Probe],
    target: Target,
    options: Options,
    gpus: GpuWatch,
) -> None:
    journal = sender.journal
    earlier = options.resume
    facts = (earlier and earlier.facts) or await _discover(sender, target, options, gpus)
    journal.append("facts", facts)
    gauge = make_gauge(
        sender.client, facts, target.workers, trust_discovered=target.trust_discovered
    )
    limits = Limits(
        options.concurrency,
        options.deadline_seconds,
        _budget(suite, options.budget),
        suite.tokens,
        suite.stop_when_proven or options.stop_when_proven,
        suite.bound,
    )
    meter = await make_meter(sender.client, facts, with_key=target.trust_discovered)
    if meter:
        journal.append("topology", meter.topology)
    backoff = None
    if suite.pause_above is not None:
        use = fullest_pool(
            sender.client, facts, target.workers, trust_discovered=target.trust_discovered
        )
        backoff = Backoff(use, suite.pause_above, sender.listener)
    runner = Runner(sender, probes, facts, gauge, meter, limits, backoff)
    async with _sampled(sender, facts, target):
        await _drive(runner, journal, options)
    journal.append("facts_after", await _discover(sender, target, options, gpus))


async def _drive(runner: Runner, journal: Journal, options: Options) -> None:
    """What was asked for: a run, the rest of one, a part of one again, or its plan."""
    if earlier := options.resume:
        for kind in ("calibration", "plan", "high_water"):
            if (value := getattr(earlier, kind)) is not None:
                journal.append(kind, value)
        for series in earlier.series:
            journal.append("series", series)
        await runner.resume(earlier)
    elif options.again:
        await runner.replay(options.again)
    elif options.only_plan:
        await runner.plan()
    else:
        await runner.run()


@asynccontextmanager
async def _sampled(sender: Sender, facts: Facts, target: Target) -> AsyncIterator[None]:
    """The pools are watched while the block lasts; what was seen is recorded however it ends."""
    sampler = Sampler(
        target.endpoint,
        facts.workers,
        short_names(facts.workers),
        with_key=target.trust_discovered,
        known=target.workers,
        prometheus=target.prometheus,
    )
    try:
        async with sampler:
            yield
    finally:
        for series in sampler.series():
            sender.journal.append("series", series)


async def _served(client: Client, options: Options) -> tuple[openai.Model, ...] | None:
    """What is served here: an answer that names another one of these is no alias of the model asked for."""
    listing = await model_list(client, min(METADATA_SECONDS, options.deadline_seconds))
    return openai.models(listing.value) or None


async def _keys_are_accepted(client: Client, target: Target, options: Options) -> None:
    """Raises Unauthorized for a tenant whose key opens nothing: its requests would only be refused."""
    url = f"{client.endpoint.base_url}/models"
    seconds = min(METADATA_SECONDS, options.deadline_seconds)
    for number, identity in enumerate(target.identities):
        reply = await client.get_json(
            url, with_key=True, identity=identity, deadline_seconds=seconds
        )
        if reply.reason is Reason.UNAUTHORIZED:
            raise Unauthorized(
                f"GET {url} as tenants.{number} of the deployment file: the credentials were refused. Check "
                "that tenant's key and headers."
            )


async def _discover(sender: Sender, target: Target, options: Options, gpus: GpuWatch) -> Facts:
    return await facts_of(
        sender.client,
        target,
        sender.writer.site_key,
        gpus,
        deadline_seconds=min(METADATA_SECONDS, options.deadline_seconds),
    )


def _budget(suite: Suite, given: Budget) -> Budget:
    """What the command line allows, and where it says nothing of minutes, the suite's."""
    if given.seconds is not None or suite.minutes is None:
        return given
    return replace(given, seconds=60.0 * suite.minutes)


def as_far_as_it_goes(record: RunRecord) -> RunRecord:
    """A record of a run that was cut off, judged: what it had found by then is said. Any other as it is."""
    if record.verdict or not record.exchanges:
        return record
    stopped = record.model_copy(update={"stopped": record.stopped or "interrupted"})
    judged = judge(stopped, record.info.requires, shipped_advisories())
    return stopped.model_copy(update={"findings": judged.findings, "verdict": judged.verdict})


def conclude(journal: Journal, requires: Sequence[ClaimName]) -> None:
    """Judge what was recorded, with what is known of the engines."""
    judged = judge(journal.record, requires, shipped_advisories())
    for finding in judged.findings:
        journal.append("finding", finding)
    journal.append("verdict", judged.verdict)
