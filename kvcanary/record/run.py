"""The whole of a run as it is recorded, and read back."""

from kvcanary.deployment.facts import Facts
from kvcanary.probing.sizing import Calibration
from kvcanary.record.base import Recorded
from kvcanary.record.baseline import Baseline
from kvcanary.record.boundary import Boundary
from kvcanary.record.exchange import Exchange
from kvcanary.record.meeting import Topology
from kvcanary.record.scale import Scale
from kvcanary.record.separation import Separation
from kvcanary.record.series import Series
from kvcanary.record.simulation import Simulation
from kvcanary.record.source import Source
from kvcanary.record.window import Window
from kvcanary.verdict.claims import ClaimName, Verdict
from kvcanary.verdict.findings import Finding
from kvcanary.verdict.waivers import Waiver

SCHEMA_VERSION = 1
CAPACITY_SUITE = "capacity"
"""Suite of a run that asked for metadata and sent no prompt."""


class RunInfo(Recorded):
    """What was run, against what, and what its text is made from (with the site key)."""

    schema_version: int = SCHEMA_VERSION
    kvcanary_version: str
    run: int
    nonce: str
    site_key: str
    """Fingerprint of the site key: which key recognises these markers."""
    started_at: float
    target: str
    model: str
    api: str
    stream: bool
    suite: str
    requires: tuple[ClaimName, ...] = ()
    bound: float | None = None
    """Rate of bad answers that the suite wants every stratum to be shown below."""
    context_tokens: int | None
    concurrency: int
    deadline_seconds: float
    probes: tuple[str, ...] = ()
    """Ids of its probes."""
    grammar: str = ""
    """Fingerprint of suite and probes as they were read."""
    sources: tuple[Source, ...] = ()
    """Files that suite and probes were read from."""
    turn: int = 0
    """How many runs of this kind there were before: which of a step's lengths in turn was due."""
    budget_tokens: int | None = None
    budget_seconds: float | None = None
    tokens_per_minute: int | None = None
    contact: str
    waivers: tuple[Waiver, ...] = ()
    replays: str | None = None
    """``RUN/RULE`` that this run replays."""
    known: tuple[int, ...] = ()
    """Older runs of which parts of codes were looked for, too."""
    tenants: tuple[str, ...] = ()
    """Names of the run's tenants, by index: our own invention."""
    separation: Separation = Separation()


class StagePrice(Recorded):
    """One stage of the plan with its price."""

    stratum: str
    purpose: str
    """What the stage serves."""
    requests: int
    longest_tokens: int
    prompt_tokens: int
    seconds: float | None
    """None where calibration could not time anything."""


class Overhead(Recorded):
    """What is sent besides the stages: ``requests`` and ``prompt_tokens`` as expected, and the most."""

    what: str
    requests: int
    prompt_tokens: int
    most_requests: int
    most_prompt_tokens: int


class UnmetNeed(Recorded):
    """A probe that could not be run here."""

    probe: str
    need: str
    reason: str
    applicable: bool
    """Whether it would have something to test: if so, what it supports stays inconclusive."""


class PlanNote(Recorded):
    """What was planned, what that costs, and what was left out and why."""

    first_number: int
    """Number of its first exchange, before the budget left any out: lets a cut-off run go on."""
    stages: tuple[StagePrice, ...]
    requests: int
    prompt_tokens: int
    seconds: float | None
    skipped: tuple[str, ...]
    overhead: tuple[Overhead, ...] = ()
    """Sent besides the stages."""
    most_prompt_tokens: int | None = None
    """No more than this is sent, all together; None where nobody could be asked."""
    unmet: tuple[UnmetNeed, ...] = ()

    @property
    def all_prompt_tokens(self) -> int:
        """As expected, overhead included; never more than the most."""
        expected = self.prompt_tokens + sum(o.prompt_tokens for o in self.overhead)
        return min(expected, self.most_prompt_tokens or expected)


class HighWater(Recorded):
    """The most tokens that were in use at once while the victims were held."""

    tokens: int
    how: str
    """measured (the workers' own figures) or estimated (what was in flight)."""
    decoders: tuple[str, ...] = ()
    """Decode workers and ranks that the victims met, where that can be seen."""


class RunRecord(Recorded):
    """A complete or partial run: parts that it did not come to are None or empty."""

    info: RunInfo
    facts: Facts | None = None
    facts_after: Facts | None = None
    """The same, asked again when the last answer had been read."""
    baseline: Baseline | None = None
    """The earlier run that this one is compared with."""
    calibration: Calibration | None = None
    plan: PlanNote | None = None
    simulations: tuple[Simulation, ...] = ()
    topology: Topology | None = None
    """The workers that a request may meet; None where none is known."""
    high_water: HighWater | None = None
    boundary: Boundary | None = None
    exchanges: tuple[Exchange, ...] = ()
    series: tuple[Series, ...] = ()
    """How full the workers' pools were while the run lasted."""
    windows: tuple[Window, ...] = ()
    """What the workers counted while each stage was under way."""
    scale: Scale | None = None
    stopped: str | None = None
    """Why the run ended before its plan was done."""
    findings: tuple[Finding, ...] = ()
    verdict: Verdict | None = None
