"""Records for the HTML report: those of every format, and one that is far larger than any real one."""

from collections.abc import Callable

from kvcanary.record.meeting import Pair, Topology
from kvcanary.record.run import RunRecord
from kvcanary.record.series import MAX_STEPS, Series
from kvcanary.verdict.claims import Holding, Status
from kvcanary.verdict.findings import Severity
from tests.builders import exchange, finding, foreign
from tests.report.scenes import VERDICTS, failing

DIFFERENT, TIMES = 10_000, 10
PAIRS = tuple(Pair(prefill=f"P{p}", decode=f"D{d}") for p in range(1, 41) for d in range(1, 41))


def enormous(different: int = DIFFERENT) -> RunRecord:
    """Of everything that has no bound of its own, far too much for one page: 100,000 exchanges, of which one in
    ten is different (so that they are made quickly)."""
    kinds = [
        exchange(1),
        exchange(1, lost=True),
        exchange(1, outcome="refused"),
        exchange(1, outcome="hung"),
        exchange(1, foreign=(foreign(at_tokens=5_000), foreign(tenant=None, request=None))),
    ]
    sent = [
        kinds[n % 5].model_copy(
            update={
                "number": n,
                "group": f"probe-{n % 400}/stratum-{n % 3_000}",
                "probe": f"probe-{n % 400}",
                "tenant": n % 700,
                "prompt_tokens": 200 + 90 * n,
                "started_at": 1_780_000_000.0 + 3 * n,
                "first_token_seconds": 0.1 + n / 4_000 + (n % 97) / 30,
                "met": PAIRS[n % len(PAIRS)],
                "foreign": tuple(
                    f.model_copy(
                        update={"tenant": (n * 7) % 900, "request": n - 1, "at_tokens": 45 * n}
                    )
                    for f in kinds[n % 5].foreign
                ),
            }
        )
        for n in range(different)
    ]
    lines = tuple(f"request {n} holds a whole code" for n in range(10_000))
    about = tuple(e.number for e in sent if e.foreign)
    found = [
        finding(evidence=lines, exchanges=about, severity=list(Severity)[n % 6]) for n in range(600)
    ]
    run = failing()
    assert run.verdict
    strata = [
        run.verdict.strata[0].model_copy(update={"name": f"probe/stratum-{n}"})
        for n in range(3_000)
    ]
    holdings = [
        Holding(
            worker=f"W{n}",
            url=f"http://w{n}",
            role="unified",
            rank=n % 8,
            pool_tokens=None if n % 100 == 7 else 50_000 + 100 * n,
            limit_tokens=None,
            page_tokens=64,
            used_tokens=None,
            source="/server_info",
            status=list(Status)[n % 3],
            note="",
        )
        for n in range(900)
    ]
    series = [
        Series(
            worker=f"D{n}",
            source="its own figures",
            pool_tokens=100_000,
            began_at=1_780_000_000.0,
            at_seconds=tuple(70.0 * s for s in range(MAX_STEPS)),
            used_tokens=tuple((s * 997 * (n + 1)) % 100_000 for s in range(MAX_STEPS)),
        )
        for n in range(300)
    ]
    return run.model_copy(
        update={
            "exchanges": TIMES * tuple(sent),
            "findings": tuple(found),
            "series": tuple(series),
            "topology": Topology(
                prefill=tuple(f"P{n}" for n in range(1, 41)),
                decode=tuple(f"D{n}" for n in range(1, 41)),
                visible=True,
            ),
            "verdict": run.verdict.model_copy(
                update={"strata": tuple(strata), "holdings": tuple(holdings)}
            ),
        }
    )


def leaking() -> RunRecord:
    """A failing run with something for each picture to show."""
    run = failing()
    sent = [
        e.model_copy(
            update={
                "started_at": 1_780_000_000.0 + 2 * n,
                "first_token_seconds": 0.1 + e.length_tokens / 50_000,
                "met": Pair(prefill="P1", decode="D1"),
                "foreign": (foreign(request=21, tenant=3, at_tokens=4_000),) if e.foreign else (),
            }
        )
        for n, e in enumerate(run.exchanges)
    ]
    use = Series(
        worker="D1",
        source="its own figures",
        pool_tokens=100_000,
        began_at=1_780_000_000.0,
        at_seconds=(0.0, 5.0, 10.0, 20.0),
        used_tokens=(0, 97_000, None, 10),
        last_tokens=10,
    )
    return run.model_copy(
        update={
            "exchanges": tuple(sent),
            "series": (use,),
            "topology": Topology(prefill=("P1",), decode=("D1", "D2"), visible=True),
        }
    )


RECORDS: dict[str, Callable[[], RunRecord]] = {**VERDICTS, "leaking": leaking, "enormous": enormous}
"""Every kind of record by its name."""
