"""Short ways to make the values that pure tests judge: facts, exchanges, records."""

from typing import Any

from kvcanary.canary.prompt import Position
from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.record.exchange import Exchange, ForeignText, Form, Nulls, Purpose, Recall
from kvcanary.record.meeting import Topology
from kvcanary.record.run import RunInfo, RunRecord
from kvcanary.record.scale import Scale
from kvcanary.record.simulation import Simulation
from kvcanary.record.window import Window, Work
from kvcanary.verdict.findings import Finding, Severity

RUN = 0x0ABCDEF
SCALE = Scale(planted_codes=5_000, planted_slots=500_000, tenants=8, phantoms=24)


def exchange(number: int = 1, **fields: Any) -> Exchange:
    """An answered reader of 10,000 tokens that kept its label; ``fields`` say what differs.

    ``tokens`` sets what was planned and what the server counted; ``lost`` the label.
    """
    tokens = fields.pop("tokens", 10_000)
    lost = fields.pop("lost", False)
    outcome = fields.get("outcome", "answered")
    answered = outcome == "answered"
    recall = Recall.LOST if lost else Recall.KEPT
    defaults: dict[str, Any] = {
        "number": number,
        "name": f"kvc-0abcdef-{number:04d}",
        "probe": "oversize",
        "group": "edge",
        "purpose": Purpose.READER,
        "tenant": 3,
        "api": "chat",
        "stream": True,
        "planned_tokens": tokens,
        "chapters_before": 1,
        "chapters_after": 1,
        "pad_words": 0,
        "asked": Position.START,
        "max_tokens": 160,
        "started_at": 1_780_000_000.0,
        "outcome": outcome,
        "reason": "complete" if answered else "deadline",
        "status": 200 if answered else None,
        "finish_reason": "stop" if answered else None,
        "prompt_tokens": tokens if answered else None,
        "completion_tokens": 20 if answered else None,
        "cached_tokens": 0 if answered else None,
        "answer_characters": 80 if answered else 0,
        "first_token_seconds": None,
        "total_seconds": 1.0,
        "recall": recall if answered else Recall.NOT_READ,
        "nulls": Nulls(code_windows=20, phrase_windows=1),
    }
    return Exchange.model_validate({**defaults, **fields})


def calibration(*numbers: int, **fields: Any) -> list[Exchange]:
    """Short exchanges that ask for start, middle and end in turn."""
    return [
        exchange(
            n,
            group="calibration",
            purpose=Purpose.CALIBRATION,
            planned_tokens=None,
            prompt_tokens=400,
            asked=list(Position)[n % 3],
            **fields,
        )
        for n in numbers
    ]


def readers(first: int, group: str = "edge", **fields: Any) -> list[Exchange]:
    """Three exchanges, one for each position; ``lost`` may be a set of positions."""
    lost = fields.pop("lost", ())
    return [
        exchange(first + i, group=group, asked=p, lost=p in lost, **fields)
        for i, p in enumerate(Position)
    ]


def decoys(first: int = 90, **fields: Any) -> list[Exchange]:
    """The positive control before and after, both seen."""
    return [
        exchange(first + i, group="decoys", purpose=p, tokens=900, **{"decoy_seen": True, **fields})
        for i, p in enumerate((Purpose.DECOY_BEFORE, Purpose.DECOY_AFTER))
    ]


def foreign(form: Form = Form.CODE, **fields: Any) -> ForeignText:
    """A whole code of request 7, tenant 6."""
    defaults = {"request": 7, "tenant": 6, "run": RUN, "extent": 16, "whole": True}
    return ForeignText.model_validate({"form": form, **defaults, **fields})


def worker(role: Role = Role.DECODE, pool: int | None = 100_000, **fields: Any) -> Worker:
    """A worker with a context of 65,536 whose limit follows from it and the pool, as SGLang has it."""
    context = fields.pop("context", 65_536)
    known = [n for n in (pool, context) if n is not None]
    limit = fields.pop("limit", min(known) - 7 if known else None)
    defaults = {"engine": "sglang", "page_tokens": 64, "source": "/server_info"}
    return Worker.model_validate(
        {
            "role": role,
            "url": f"http://{role.value}:30000",
            "pool_tokens": pool,
            "limit_tokens": limit,
            "context_tokens": context,
            **defaults,
            **fields,
        }
    )


def facts(*workers: Worker, context: int | None = 65_536, **fields: Any) -> Facts:
    """A deployment that promises 65,536 tokens."""
    return Facts.model_validate(
        {"context_tokens": context, "context_source": "--context", "workers": workers, **fields}
    )


def sound(prefill: int = 100_000, decode: int = 100_000, **fields: Any) -> Facts:
    """One prefill and one decode worker."""
    return facts(worker(Role.PREFILL, prefill), worker(Role.DECODE, decode), **fields)


def info(**fields: Any) -> RunInfo:
    """How the run began."""
    defaults = {
        "kvcanary_version": "0.1.0",
        "run": RUN,
        "nonce": "00" * 16,
        "site_key": "01234567",
        "started_at": 1_780_000_000.0,
        "target": "http://127.0.0.1:1/v1",
        "model": "tiny",
        "api": "chat",
        "stream": True,
        "suite": "check",
        "context_tokens": 65_536,
        "concurrency": 4,
        "deadline_seconds": 60.0,
        "contact": "whoever",
    }
    return RunInfo.model_validate({**defaults, **fields})


def record(*exchanges: Exchange, **fields: Any) -> RunRecord:
    """A run with these exchanges on a sound deployment."""
    about = fields.pop("info", info())
    defaults = {"info": about, "facts": sound(), "scale": SCALE, "exchanges": exchanges}
    return RunRecord.model_validate({**defaults, **fields})


def healthy(**fields: Any) -> RunRecord:
    """A run in which everything went well."""
    sent = [
        *calibration(0, 1, 2),
        *readers(10, "edge", tokens=65_000),
        *readers(20, "control", tokens=8_000, purpose=Purpose.CONTROL),
        *decoys(),
    ]
    fields.setdefault("simulations", simulations(4))
    fields.setdefault("topology", Topology(prefill=("P1",), decode=("D1",), visible=True))
    exchanges = fields.pop("exchanges", sent)
    stages = dict.fromkeys(e.group for e in exchanges if e.planned_tokens is not None)
    windows = [window(*(e for e in exchanges if e.group == group)) for group in stages]
    fields.setdefault("windows", windows)
    return record(*exchanges, **fields)


def window(*exchanges: Exchange, **fields: Any) -> Window:
    """A quiet one in which prefill and decode counted what the answers say."""
    answered = [e for e in exchanges if e.answered]
    counted = work(
        len(answered),
        sum(e.prompt_tokens or 0 for e in answered),
        sum(e.completion_tokens or 0 for e in answered),
    )
    defaults = {
        "group": exchanges[0].group,
        "exchanges": [e.number for e in exchanges],
        "prefill": counted,
        "decode": counted,
        "quiet": True,
        "held_tokens": 0,
    }
    return Window.model_validate({**defaults, **fields})


def work(requests: int, prompt_tokens: int, generation_tokens: int = 0) -> Work:
    """What the workers of a role counted."""
    return Work(requests=requests, prompt_tokens=prompt_tokens, generation_tokens=generation_tokens)


def simulations(recognised: int, answered: int = 4) -> tuple[Simulation, ...]:
    """Simulated leaks, of which the first ``recognised`` gave the name away."""
    return tuple(
        Simulation(
            number=60 + 2 * index,
            with_question=bool(index % 2),
            answered=True,
            surfaced=(Form.NAME,) if index < recognised else (),
        )
        for index in range(answered)
    )


def finding(**fields: Any) -> Finding:
    """A leak."""
    defaults = {
        "rule": "isolation/foreign-text",
        "severity": Severity.LEAK,
        "stratum": "edge",
        "title": "3 of 3 answers in `edge` hold text of other requests",
        "evidence": ("request 10 holds a whole code",),
        "remedy": "Isolate the deployment.",
        "exchanges": (10,),
        "odds": 1e-12,
    }
    return Finding.model_validate({**defaults, **fields})
