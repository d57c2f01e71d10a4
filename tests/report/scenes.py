"""Records for the formats: one of each verdict, and one in which every text is hostile."""

from typing import Any

from kvcanary.deployment.facts import Role
from kvcanary.record.run import HighWater, RunRecord
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge
from tests.builders import facts, foreign, healthy, record, sound, worker

REQUIRED = (ClaimName.OWNERSHIP, ClaimName.ISOLATION, ClaimName.CAPACITY)
HOSTILE = (
    "a | b `c` <script>alert(1)</script> & \" ' ]]> --> ::error::x %0A %25\r\n::stop-commands::y\n"
    "# head\n|x|y|\n@everyone #1 https://evil.example [l](javascript:x) ![i](http://evil/i.png) "
    "\x00\x07\x1b[31m\x9b\ufffe\uffff \u202edessap\u202c \u2066 {{ .Value }} ${x} $(id) \\ * _ ~ end"
)


def judged(run: RunRecord) -> RunRecord:
    """With its findings and verdict."""
    found = judge(run, REQUIRED)
    return run.model_copy(update={"findings": found.findings, "verdict": found.verdict})


def passing(**fields: Any) -> RunRecord:
    """Every required claim holds."""
    return judged(healthy(high_water=HighWater(tokens=97_000, how="measured"), **fields))


def failing(**fields: Any) -> RunRecord:
    """Two answers hold text of others, and the pool of one worker is too small."""
    small = facts(worker(Role.PREFILL, 20_000), worker(Role.DECODE))
    run = healthy(high_water=HighWater(tokens=97_000, how="measured"), **{"facts": small, **fields})
    leaky = [
        e.model_copy(update={"foreign": (foreign(),)}) if e.number in (10, 11) else e
        for e in run.exchanges
    ]
    return judged(run.model_copy(update={"exchanges": tuple(leaky)}))


def inconclusive() -> RunRecord:
    """Nobody was reached."""
    return judged(record(facts=sound(), stopped="the deployment stopped answering"))


def cut_off() -> RunRecord:
    """No verdict."""
    return record(facts=sound())


def hostile() -> RunRecord:
    """A failing run with hostile text wherever a text is free."""
    run = failing()
    assert run.verdict
    verdict = run.verdict.model_copy(
        update={
            "headline": HOSTILE,
            "claims": tuple(c.model_copy(update={"text": HOSTILE}) for c in run.verdict.claims),
            "strata": tuple(s.model_copy(update={"name": HOSTILE}) for s in run.verdict.strata),
        }
    )
    findings = [
        f.model_copy(
            update={
                "title": HOSTILE,
                "evidence": (HOSTILE, HOSTILE),
                "remedy": HOSTILE,
                "stratum": HOSTILE,
                "workers": (HOSTILE,),
            }
        )
        for f in run.findings
    ]
    about = run.info.model_copy(
        update={"target": HOSTILE, "model": HOSTILE, "suite": HOSTILE, "contact": HOSTILE}
    )
    return run.model_copy(
        update={
            "info": about,
            "verdict": verdict,
            "findings": tuple(findings),
            "stopped": HOSTILE,
        }
    )


VERDICTS = {
    "passing": passing,
    "failing": failing,
    "inconclusive": inconclusive,
    "cut off": cut_off,
    "hostile": hostile,
}
