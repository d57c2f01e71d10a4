"""Ownership: does an answer show that its own pages were read, at head, middle and last page?

Each answer is judged against a control group of the same deployment: exchanges that asked for the
labels in the same order, just below the limit (or short and quiet). Only labels which *all* of the
control keeps are measurable. A loss counts as ``corruption`` when it was confirmed once with fresh
text and cannot be put down to length alone: see ``_condemns``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from kvcanary.canary.prompt import Position
from kvcanary.record.exchange import Exchange, Purpose, Recall
from kvcanary.verdict.findings import Finding, Severity

COMPARABLE = 1.25
"""Up to this ratio of lengths a model that keeps a label in the control keeps it in the stratum too.
Beyond it, losing the head or the middle may be the model's own weakness with length, and only the label
on the last page, a dozen tokens before the answer, counts."""

JUDGED = (Purpose.READER, Purpose.CONFIRMATION, Purpose.BYSTANDER)

Cell = tuple[Position, Position]
"""(label asked for first, label): recall depends on both."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One exchange against its control."""

    exchange: Exchange
    kept: tuple[Position, ...]
    lost: tuple[Position, ...]

    @property
    def counts(self) -> bool:
        return bool(self.kept or self.lost)


@dataclass(frozen=True, slots=True)
class Group:
    """The exchanges of one stratum, measured against ``control`` (None: no sound control)."""

    name: str
    exchanges: tuple[Exchange, ...]
    control: str | None
    control_tokens: int
    measured: tuple[Measured, ...]

    @property
    def losing(self) -> tuple[Measured, ...]:
        return tuple(one for one in self.measured if one.lost)


def measure(exchanges: Sequence[Exchange]) -> tuple[Group, ...]:
    """Every judged stratum, shortest first, against the longest sound stratum shorter than itself."""
    controls: list[tuple[str, int, frozenset[Cell]]] = []
    groups = []
    for name, members in _by_group(exchanges):
        tokens = max((e.length_tokens for e in members), default=0)
        purpose = members[0].purpose
        shorter = [c for c in controls if c[1] <= tokens or purpose is Purpose.BYSTANDER]
        if purpose is not Purpose.CONTROL and shorter:
            control, control_tokens, sound = max(shorter, key=lambda c: c[1])
            measured = tuple(_against(e, sound) for e in members if e.answered)
            group = Group(
                name, members, control, control_tokens, tuple(m for m in measured if m.counts)
            )
        else:
            group = Group(name, members, None, 0, ())
        if purpose is not Purpose.CONTROL:
            groups.append(group)
        sound_cells = _sound_cells(members)
        if sound_cells and not group.losing and purpose in (Purpose.CONTROL, Purpose.READER):
            controls.append((name, tokens, sound_cells))
    return tuple(groups)


def _by_group(exchanges: Sequence[Exchange]) -> list[tuple[str, tuple[Exchange, ...]]]:
    """Strata by length; a control sorts before what it is a control for."""
    judged = [e for e in exchanges if e.purpose in (*JUDGED, Purpose.CONTROL)]
    judged.sort(key=lambda e: e.group)
    groups = [(name, tuple(members)) for name, members in groupby(judged, key=lambda e: e.group)]

    def order(item: tuple[str, tuple[Exchange, ...]]) -> tuple[bool, int, bool]:
        members = item[1]
        longest = max(e.length_tokens for e in members)
        bystander = members[0].purpose is Purpose.BYSTANDER
        return bystander, longest, members[0].purpose is not Purpose.CONTROL

    return sorted(groups, key=order)


def _sound_cells(exchanges: Iterable[Exchange]) -> frozenset[Cell]:
    """Cells in which every answered exchange kept the label."""
    recalls: dict[Cell, list[bool]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.answered:
            for position in Position:
                recall = exchange.labels.at(position)
                if recall is not Recall.NOT_READ:
                    recalls[exchange.first_asked, position].append(recall is Recall.KEPT)
    return frozenset(cell for cell, kept in recalls.items() if all(kept))


def _against(exchange: Exchange, sound: frozenset[Cell]) -> Measured:
    cells = [p for p in Position if (exchange.first_asked, p) in sound]
    return Measured(
        exchange,
        kept=tuple(p for p in cells if exchange.labels.at(p) is Recall.KEPT),
        lost=tuple(p for p in cells if exchange.labels.at(p) is Recall.LOST),
    )


def unconfirmed(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """One losing exchange of every stratum with losses and no confirmation yet: send it again, fresh."""
    chosen = []
    for group in measure(exchanges):
        confirmed = any(e.purpose is Purpose.CONFIRMATION for e in group.exchanges)
        if group.losing and not confirmed:
            chosen.append(max(group.losing, key=lambda one: len(one.lost)).exchange)
    return tuple(chosen)


def findings(groups: Sequence[Group]) -> tuple[Finding, ...]:
    """Corruption where losses are confirmed, a warning where they are not."""
    return tuple(_finding(group) for group in groups if group.losing)


def _condemns(group: Group) -> bool:
    """Confirmed, and no property of the model: comparable length, or the last page lost, or all of it."""
    losing = [one for one in group.losing if _unexplained(one, group)]
    return len(losing) > 1 and any(
        one.exchange.purpose is Purpose.CONFIRMATION for one in losing
    )


def _unexplained(one: Measured, group: Group) -> bool:
    comparable = one.exchange.length_tokens <= COMPARABLE * group.control_tokens
    return comparable or Position.END in one.lost or not one.kept


def _finding(group: Group) -> Finding:
    condemned = _condemns(group)
    lines = [
        f"request {one.exchange.number} ({one.exchange.length_tokens:,} tokens, asked for the "
        f"{one.exchange.first_asked} first): lost {_list(one.lost)}, kept {_list(one.kept)}"
        + (" [confirmation, fresh text]" if one.exchange.purpose is Purpose.CONFIRMATION else "")
        for one in group.losing
    ]
    lines.append(
        f"control group `{group.control}` (up to {group.control_tokens:,} tokens) keeps every one of them"
    )
    lost = tuple(p for p in Position if any(p in one.lost for one in group.losing))
    return Finding(
        rule="ownership/labels-lost" if condemned else "ownership/labels-lost-unconfirmed",
        severity=Severity.CORRUPTION if condemned else Severity.DEGRADED,
        stratum=group.name,
        title=f"{len(group.losing)} of {len(group.measured)} answers in `{group.name}` do not own their "
        f"pages: {_list(lost)} lost where the control keeps it"
        if condemned
        else f"{len(group.losing)} of {len(group.measured)} answers in `{group.name}` lost own labels; "
        "not confirmed, or too much longer than the control to tell from a model's own forgetting",
        evidence=tuple(lines),
        remedy="Take these lengths out of service (lower the context limit at the front door below the "
        "smallest worker's limit) until decode refuses a transfer that does not cover the whole prompt."
        if condemned
        else "Run again with more readers, or with a control closer in length (--context).",
        exchanges=tuple(one.exchange.number for one in group.losing),
    )


def _list(positions: Iterable[Position]) -> str:
    return ", ".join(position.value for position in positions) or "none"
