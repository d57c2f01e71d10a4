"""One assessment: from a target to a judged record of its capacity, without a prompt."""

import time
from contextlib import suppress
from pathlib import Path

import kvcanary
from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import load_or_create
from kvcanary.deployment.survey import facts_of
from kvcanary.deployment.target import Target
from kvcanary.errors import KvcanaryError, UsageError
from kvcanary.probing.client import Client
from kvcanary.record.baseline import Baseline
from kvcanary.record.journal import Journal
from kvcanary.record.run import CAPACITY_SUITE, RunInfo
from kvcanary.run import Result, conclude, resolve_model
from kvcanary.telemetry.gpus import GpuWatch
from kvcanary.verdict.claims import ClaimName

REQUIRES = (ClaimName.CAPACITY,)


async def assess(
    target: Target,
    *,
    identity: RunIdentity,
    record: Path,
    deadline_seconds: float,
    baseline: Baseline | None = None,
) -> Result:
    """Ask the deployment for its metadata and judge its capacity.

    Raises KvcanaryError when nobody could be asked. Cancellation leaves a valid partial record.
    """
    with suppress(UsageError):  # several models are served: which one is meant changes no pool
        target = await resolve_model(target)
    site_key = load_or_create()
    info = RunInfo(
        kvcanary_version=kvcanary.__version__,
        run=identity.number,
        nonce=identity.nonce.hex(),
        site_key=site_key.fingerprint(),
        started_at=time.time(),
        target=target.name,
        model=target.endpoint.model,
        api=target.endpoint.api.value,
        stream=target.endpoint.stream,
        suite=CAPACITY_SUITE,
        requires=REQUIRES,
        context_tokens=target.context_tokens,
        concurrency=1,
        deadline_seconds=deadline_seconds,
        contact="",
        waivers=target.waivers,
    )
    with Journal(record) as journal:
        journal.append("info", info)
        if baseline:
            journal.append("baseline", baseline)
        try:
            async with (
                Client(target.endpoint) as client,
                GpuWatch(client, target.gpus, target.prometheus) as gpus,
            ):
                facts = await facts_of(
                    client, target, site_key, gpus, deadline_seconds=deadline_seconds
                )
            journal.append("facts", facts)
        except KvcanaryError as error:
            journal.append("stopped", str(error))
            raise
        conclude(journal, REQUIRES)
        journal.complete()
    return Result(journal.record, journal.written_path, journal.error)
