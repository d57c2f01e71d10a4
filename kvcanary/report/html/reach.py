"""Picture: whose text reached whose answers, tenant by tenant."""

from collections import Counter

from kvcanary.record.exchange import Form
from kvcanary.record.run import RunRecord
from kvcanary.report.html.fate import leaking
from kvcanary.report.html.figure import Cell, Figure, Matrix, Missing, more

ID, TITLE = "reach", "What reached whom"
MOST = 16
"""Tenants in a row or column, those with the most sightings first."""
OLDER = -1
"""Stands for whoever wrote the text of an older run."""


def draw(record: RunRecord) -> Figure | Missing:
    """Answers by the tenant who got them and the tenant whose text they hold."""
    leaks = leaking(record)
    counts: Counter[tuple[int, int]] = Counter()
    for exchange in record.exchanges:
        if exchange.number in leaks:
            # words alone name nobody: chance brings them up, too
            whose = {
                OLDER if text.tenant is None else text.tenant
                for text in exchange.foreign
                if text.form is not Form.WORD
            }
            counts.update((exchange.tenant, owner) for owner in whose)
    if not counts:
        searched = sum(1 for e in record.exchanges if e.answer_characters)
        return Missing(
            ID,
            TITLE,
            f"no text of another request was proven in {searched:,} answers."
            if searched
            else "no answer came.",
        )
    readers, owners = Counter[int](), Counter[int]()
    for (reader, owner), count in counts.items():
        readers[reader] += count
        owners[owner] += count
    rows, columns = _most(readers), _most(owners)
    largest = max(counts.values())
    same = sum(count for (reader, owner), count in counts.items() if reader == owner)
    return Figure(
        ID,
        TITLE,
        "Each row is a tenant who got answers, each column a tenant whose text stood in them; the number counts "
        "answers with another's codes, phrases or name."
        + (
            " Where row and column are one tenant, the text is of another of that tenant's requests."
            if same
            else ""
        )
        + (" “Older run” is text of an earlier run of this site." if OLDER in owners else ""),
        Matrix(
            "answer to \u2193  text of \u2192",
            tuple(_name(t) for t in columns),
            tuple(
                (_name(reader), tuple(_cell(counts[reader, owner], largest) for owner in columns))
                for reader in rows
            ),
        ),
        notes=(
            *more(len(readers) - len(rows), "rows"),
            *more(len(owners) - len(columns), "columns"),
        ),
    )


def _most(counts: Counter[int]) -> list[int]:
    kept = sorted(counts, key=lambda tenant: (-counts[tenant], tenant))[:MOST]
    return sorted(kept, key=lambda tenant: (tenant == OLDER, tenant))


def _name(tenant: int) -> str:
    return "older run" if tenant == OLDER else f"tenant {tenant}"


def _cell(count: int, largest: int) -> Cell:
    return Cell(f"{count:,}" if count else "\u00b7", -(-4 * count // largest))
