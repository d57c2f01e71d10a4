"""Habits of real deployments by name: ``KEY`` or ``KEY=VALUE``, each a change of one scenario field."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kvcanary.errors import UsageError
from kvcanary.lab.lifecycle import Change, RestartAfter, VersionChangeAfter
from kvcanary.lab.scenario import Fallback, Scenario
from kvcanary.lab.speech import Manner


class _BadValueError(Exception):
    """A value that a habit does not take; the message says what it takes."""


@dataclass(frozen=True)
class Habit:
    """``value`` names what stands behind the ``=`` (None: nothing does). ``where`` is the part of a
    deployment that has the habit, ``does`` what it does then."""

    key: str
    value: str | None
    where: str
    does: str
    _take_up: Callable[[Scenario, str], Scenario]

    @property
    def usage(self) -> str:
        """As it is written on the command line."""
        return self.key if self.value is None else f"{self.key}={self.value}"

    def taken_up(self, scenario: Scenario, value: str | None) -> Scenario:
        """The scenario with the habit. Raises UsageError when the value is none."""
        if (value is None) != (self.value is None):
            raise UsageError(f"a habit is written {self.usage}")
        try:
            return self._take_up(scenario, value or "")
        except _BadValueError as error:
            raise UsageError(f"{self.usage}: {error}, not {value!r}") from None


def with_habit(scenario: Scenario, text: str) -> Scenario:
    """The scenario with the habit ``KEY`` or ``KEY=VALUE``.

    Raises UsageError for unknown keys (with the nearest known one) and values that make no sense.
    """
    key, equals, value = text.partition("=")
    habit = _HABITS.get(key)
    if habit is None:
        near = difflib.get_close_matches(key, _HABITS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(_HABITS)}"
        raise UsageError(f"there is no habit {key!r}{hint}")
    return habit.taken_up(scenario, value if equals else None)


def habits() -> Iterable[Habit]:
    """All habits, in the order in which a deployment is met: model, worker, router, gateway."""
    return _HABITS.values()


def _count(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise _BadValueError("a whole number from 1 on is needed")
    return int(value)


def _number(value: str, most: float = math.inf) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most or math.isinf(number):
        raise _BadValueError("a number from 0" + (" on" if math.isinf(most) else f" to {most:g}"))
    return number


def _fallback(value: str) -> Fallback:
    name, _, tokens = value.rpartition("@")
    if not name:
        raise _BadValueError("a model's name, @ and a number of tokens are needed")
    return Fallback(name, _count(tokens))


def _speaks(**changes: Any) -> Callable[[Scenario, str], Scenario]:
    return lambda scenario, _: replace(scenario, speech=replace(scenario.speech, **changes))


def _forgets(scenario: Scenario, value: str) -> Scenario:
    speech = replace(scenario.speech, forgetful_tokens=_count(value))
    return replace(scenario, speech=speech)


def _moderates(scenario: Scenario, value: str) -> Scenario:
    return replace(scenario, speech=replace(scenario.speech, declines_rate=_number(value, 1)))


def _pastes(scenario: Scenario, value: str) -> Scenario:
    if not value.strip():
        raise _BadValueError("some text is needed")
    return replace(scenario, speech=replace(scenario.speech, pastes=value))


def _gateway(field: str, read: Callable[[str], object]) -> Callable[[Scenario, str], Scenario]:
    def take_up(scenario: Scenario, value: str) -> Scenario:
        changes: dict[str, Any] = {field: read(value)}
        return replace(scenario, gateway=replace(scenario.gateway, **changes))

    return take_up


def _field(field: str, read: Callable[[str], object]) -> Callable[[Scenario, str], Scenario]:
    def take_up(scenario: Scenario, value: str) -> Scenario:
        changes: dict[str, Any] = {field: read(value)}
        return replace(scenario, **changes)

    return take_up


def _change(make: Callable[[int], Change]) -> Callable[[Scenario, str], Scenario]:
    return lambda scenario, value: replace(
        scenario, changes=(*scenario.changes, make(_count(value)))
    )


def _yes(_: str) -> bool:
    return True


_HABITS: Final = {
    habit.key: habit
    for habit in (
        Habit(
            "copy-error",
            "RATE",
            "model",
            "emits some other token that it read, this often (0 to 1)",
            _field("copy_error_rate", lambda value: _number(value, 1)),
        ),
        Habit(
            "chatter",
            None,
            "model",
            "wraps its answers in a polite opening and a closing sentence",
            _speaks(manner=Manner.CHATTER),
        ),
        Habit(
            "quote",
            None,
            "model",
            "repeats its answer many times",
            _speaks(manner=Manner.QUOTE),
        ),
        Habit(
            "mute",
            None,
            "model",
            "never repeats anything: answers a fixed polite sentence",
            _speaks(manner=Manner.MUTE),
        ),
        Habit(
            "declines",
            None,
            "model",
            "declines in words, as a moderation layer makes it",
            _speaks(manner=Manner.DECLINES),
        ),
        Habit(
            "forgetful",
            "TOKENS",
            "model",
            "finds nothing that stands more than TOKENS tokens back",
            _forgets,
        ),
        Habit(
            "thinks",
            None,
            "model",
            "begins chat answers with reasoning, unless the request turns it off",
            _speaks(thinks=True),
        ),
        Habit(
            "unrepeatable",
            None,
            "model",
            "makes other copy errors each time, for the same text too",
            _speaks(repeatable=False),
        ),
        Habit(
            "overthinks",
            None,
            "model",
            "thinks until the output budget ends, whatever the request says",
            _speaks(overthinks=True),
        ),
        Habit(
            "moderates",
            "RATE",
            "model",
            "declines in words, this often (0 to 1)",
            _moderates,
        ),
        Habit(
            "pastes",
            "TEXT",
            "model",
            "ends every answer with TEXT, as if somebody had fed it that",
            _pastes,
        ),
        Habit(
            "cold-start",
            "SECONDS",
            "worker",
            "takes so much longer for the first prompt of each prefill rank",
            _field("cold_start_seconds", _number),
        ),
        Habit(
            "output-cap",
            "N",
            "worker",
            "ends every answer after N tokens with finish `length`",
            _field("output_cap_tokens", _count),
        ),
        Habit(
            "auto-truncate",
            None,
            "worker",
            "cuts prompts that are too long and answers 200 (--allow-auto-truncate)",
            _field("auto_truncate", _yes),
        ),
        Habit(
            "restart-after",
            "N",
            "worker",
            "restarts D1 with the next version after N requests; those open fail with 503",
            _change(RestartAfter),
        ),
        Habit(
            "version-change-after",
            "N",
            "worker",
            "reports the next version everywhere after N requests",
            _change(VersionChangeAfter),
        ),
        Habit(
            "fallback",
            "NAME@TOKENS",
            "router",
            "has another model, in a deployment of its own, answer prompts above TOKENS tokens",
            _field("fallback", _fallback),
        ),
        Habit(
            "no-length",
            None,
            "router",
            "leaves max_model_len out of /v1/models",
            _field("models_show_length", lambda _: False),
        ),
        Habit(
            "system-prompt",
            "WORDS",
            "router",
            "puts a public system prompt of WORDS words before every chat",
            _field("system_prompt_tokens", _count),
        ),
        Habit(
            "overloaded-at",
            "N",
            "router",
            "answers the N-th request with 503, and no other",
            _gateway("overloaded_at", _count),
        ),
        Habit(
            "adds-headers",
            None,
            "router",
            "adds headers, cookies and ids of its own to answers",
            _gateway("adds_headers", _yes),
        ),
        Habit(
            "reorders-json",
            None,
            "gateway",
            "writes the keys of every JSON object in another order, with spaces",
            _gateway("reorders_json", _yes),
        ),
        Habit(
            "no-usage",
            None,
            "gateway",
            "takes usage out of responses",
            _gateway("hides_usage", _yes),
        ),
        Habit(
            "response-cache",
            None,
            "gateway",
            "answers a request it has seen with the same bytes, whoever asks",
            _gateway("response_cache", _yes),
        ),
        Habit(
            "tpm",
            "N",
            "gateway",
            "lets each API key send N tokens a minute, then answers 429 with Retry-After",
            _gateway("tokens_per_minute", _count),
        ),
        Habit(
            "max-body",
            "BYTES",
            "proxy",
            "answers 413 in HTML to longer bodies",
            _gateway("max_body_bytes", _count),
        ),
        Habit(
            "proxy-timeout",
            "SECONDS",
            "proxy",
            "answers 504 in HTML when no byte came in time; cuts streams that fall silent",
            _gateway("first_byte_seconds", _number),
        ),
    )
}
