"""Ownership: does an answer show that its own pages were read, at head, middle and last page?

A reader is asked for one of its three labels, and keeps or loses it. Which one varies within a stratum,
so head, middle and tail are all covered. A stratum is judged against a control of the same deployment,
the longest sound stratum that is shorter (the control group just below the limit, or short and quiet):
a position that the control does not keep is not measurable.

Models slip. How often this one does is measured on the same deployment, in conditions known to be good
(calibration, control, bystanders, shorter strata that were sound), and a stratum is condemned when its
losses, confirmations with fresh text included, are too many for that rate (exact binomial, ``CONDEMN``)
or most of the losing answers speak of other requests instead. Losses that the rate explains count in the stated
bound and are no finding; what is in between is asked again, at most ``MAX_CONFIRMATIONS`` times, and is
inconclusive if it stays there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kvcanary.canary.odds import at_least
from kvcanary.canary.prompt import Position
from kvcanary.record.exchange import Exchange, Form, Purpose
from kvcanary.verdict.findings import Finding, Severity

CONDEMN = 1e-4
"""Odds of so many losses, if the model were only slipping, below which it is corruption."""
EXPLAINED = 0.05
"""Odds above which losses are what this model does anyway."""
LEAST_SLIP_RATE = 0.05
"""Slip rate assumed even of a model that has not slipped yet."""
MAX_CONFIRMATIONS = 4
SOUND = 2 / 3
"""Part of a stratum's answers for a position that has to keep it, for the stratum to be a control."""
COMPARABLE = 1.25
"""Up to this ratio of lengths a model that keeps a label in the control keeps it in the stratum too.
Beyond it, losing the head or the middle may be the model's own weakness with length, however often it
happens: only labels on the last page, a dozen tokens before the answer, tell, and answers that speak of
others instead."""

GOOD_CONDITIONS = (Purpose.CALIBRATION, Purpose.CONTROL, Purpose.BYSTANDER)
JUDGED = (*GOOD_CONDITIONS, Purpose.READER, Purpose.CONFIRMATION)


@dataclass(frozen=True, slots=True)
class Control:
    """A stratum that keeps the labels of one position: what longer ones are compared with."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Group:
    """One stratum: what was measured of it, against which control."""

    name: str
    members: tuple[Exchange, ...]
    controls: Mapping[Position, Control]
    """The longest sound shorter stratum of each position; a position without one is not measurable."""
    measured: tuple[Exchange, ...]
    slip_rate: float
    """Upper estimate of how often this model loses a label in good conditions."""

    @property
    def losing(self) -> tuple[Exchange, ...]:
        return tuple(e for e in self.measured if not e.kept)

    @property
    def confirmations(self) -> int:
        return sum(e.purpose is Purpose.CONFIRMATION for e in self.members)

    @property
    def odds(self) -> float:
        """Odds that mere slips lose so many, over the whole stratum or at its worst position."""
        return self._odds(self.measured)

    def _odds(self, measured: Sequence[Exchange]) -> float:
        if all(e.kept for e in measured):
            return 1.0
        parts = [measured, *(_asked(measured, position) for position in Position)]
        worst = min(
            at_least(sum(not e.kept for e in part), len(part), self.slip_rate)
            for part in parts
            if part
        )
        return min(1.0, len(parts) * worst)

    @property
    def condemned(self) -> bool:
        """Confirmed with fresh text, no slips, and no weakness of the model's: what a model that forgets
        with length loses anyway does not count, but for what it says instead."""
        speaking = [e for e in self.losing if _speaks_of_others(e)]
        if _confirmed(self.losing) and len(speaking) > 1 and 2 * len(speaking) > len(self.losing):
            return True
        telling = [e for e in self.measured if self.tells(e)]
        return _confirmed(e for e in telling if not e.kept) and self._odds(telling) <= CONDEMN

    @property
    def undecided(self) -> bool:
        return bool(self.losing) and not self.condemned and self.odds < EXPLAINED

    def tells(self, exchange: Exchange) -> bool:
        """Whether its label, if it is lost, was not lost for the prompt's length alone."""
        control = self.controls[exchange.asked]
        return exchange.asked is Position.END or (
            exchange.length_tokens <= COMPARABLE * control.tokens
        )


def measure(exchanges: Sequence[Exchange]) -> tuple[Group, ...]:
    """Every stratum but calibration, which is the first control; shortest first, bystanders last."""
    good = [e for e in exchanges if e.purpose in GOOD_CONDITIONS and e.read]
    controls: dict[Position, Control] = {}
    groups: list[Group] = []
    for name, members in _by_length(exchanges):
        read = [e for e in members if e.read]
        purpose = members[0].purpose
        if purpose is not Purpose.CALIBRATION:
            others = [e for e in good if e.group != name]
            measured = tuple(e for e in read if e.asked in controls)
            groups.append(Group(name, members, dict(controls), measured, slip_rate(others)))
            if groups[-1].condemned or groups[-1].undecided or purpose is Purpose.BYSTANDER:
                continue
            good += [e for e in read if e not in good]
        for position in Position:
            asked = _asked(read, position)
            if _sound(asked):
                controls[position] = Control(name, max(e.length_tokens for e in asked))
    return tuple(groups)


def again(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """What has to be sent again with fresh text before anything can be said: one exchange a stratum."""
    chosen = []
    for group in measure(exchanges):
        unconfirmed = not group.confirmations or group.undecided or _doubtful_control(group)
        if group.losing and unconfirmed and group.confirmations < MAX_CONFIRMATIONS:
            telling = (e for e in group.losing if group.tells(e))
            chosen.append(next(telling, group.losing[0]))
    return tuple(chosen)


def unsound(exchanges: Sequence[Exchange]) -> tuple[Position, ...]:
    """Positions that calibration has asked for and not kept often enough to be a control."""
    short = [e for e in exchanges if e.purpose is Purpose.CALIBRATION and e.read]
    return tuple(p for p in Position if _asked(short, p) and not _sound(_asked(short, p)))


def findings(groups: Sequence[Group]) -> tuple[Finding, ...]:
    """Corruption where a stratum is condemned, a warning where it stays undecided."""
    return tuple(_finding(group) for group in groups if group.condemned or group.undecided)


def _doubtful_control(group: Group) -> bool:
    """A control that slipped cannot vouch for that position until it was kept often enough."""
    is_control = group.members[0].purpose is Purpose.CONTROL
    return is_control and not _sound(_asked(group.measured, group.losing[0].asked))


def _confirmed(losing: Iterable[Exchange]) -> bool:
    return any(e.purpose is Purpose.CONFIRMATION for e in losing)


def _speaks_of_others(exchange: Exchange) -> bool:
    return any(text.form in (Form.CODE, Form.PHRASE, Form.NAME) for text in exchange.foreign)


def _by_length(exchanges: Sequence[Exchange]) -> list[tuple[str, tuple[Exchange, ...]]]:
    judged = sorted(
        (e for e in exchanges if e.purpose in JUDGED), key=lambda e: (e.group, e.number)
    )
    groups = [(name, tuple(members)) for name, members in groupby(judged, key=lambda e: e.group)]

    def order(item: tuple[str, tuple[Exchange, ...]]) -> tuple[bool, bool, int]:
        purpose = item[1][0].purpose
        longest = max(e.length_tokens for e in item[1])
        return purpose is Purpose.BYSTANDER, purpose is not Purpose.CALIBRATION, longest

    return sorted(groups, key=order)


def _asked(exchanges: Iterable[Exchange], position: Position) -> tuple[Exchange, ...]:
    return tuple(e for e in exchanges if e.asked is position)


def _sound(asked: Sequence[Exchange]) -> bool:
    return bool(asked) and sum(e.kept for e in asked) >= SOUND * len(asked)


def slip_rate(good: Sequence[Exchange]) -> float:
    """How often this model loses a label, by Laplace's rule over answers in good conditions."""
    slips = sum(not e.kept for e in good)
    return max(LEAST_SLIP_RATE, (slips + 1) / (len(good) + 2))


def _finding(group: Group) -> Finding:
    lines = [_line(exchange) for exchange in group.losing]
    controls = {group.controls[e.asked].name: group.controls[e.asked] for e in group.losing}
    kept = " and ".join(f"`{c.name}` (up to {c.tokens:,} tokens)" for c in controls.values())
    lines.append(
        f"control {kept} keeps them; if this model slips {group.slip_rate:.0%} of the time, "
        f"so many losses have odds of {group.odds:.0e}"
    )
    lost = [p.value for p in Position if _asked(group.losing, p)]
    count = f"{len(group.losing)} of {len(group.measured)} answers in `{group.name}`"
    if group.condemned:
        return Finding(
            rule="ownership/labels-lost",
            severity=Severity.CORRUPTION,
            stratum=group.name,
            title=f"{count} do not own their pages: {_and(lost)} lost where the control keeps them",
            evidence=tuple(lines),
            remedy="Take these lengths out of service (lower the context limit at the front door below the "
            "smallest worker's limit) until decode refuses a transfer that does not cover the whole prompt.",
            exchanges=tuple(e.number for e in group.losing),
        )
    return Finding(
        rule="ownership/labels-lost-undecided",
        severity=Severity.DEGRADED,
        stratum=group.name,
        title=f"{count} lost their label: too many for slips of the model, not enough to condemn",
        evidence=tuple(lines),
        remedy="Run again; with a control closer in length where the model may be forgetting (--context).",
        exchanges=tuple(e.number for e in group.losing),
    )


def _line(exchange: Exchange) -> str:
    fresh = ", confirmation with fresh text" if exchange.purpose is Purpose.CONFIRMATION else ""
    return (
        f"request {exchange.number} ({exchange.length_tokens:,} tokens{fresh}): "
        f"label at the {exchange.asked.value} lost"
    )


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
