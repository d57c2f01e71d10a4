"""Accounting across workers: what prefill and decode counted against what was sent and what came back.

In the incident prefill counted one token where decode counted the whole prompt: the refusal was not the
end of the request (S30233). Prefill's prompt tokens include cached ones in SGLang and in vLLM, so a prefix
cache takes nothing away; a request that decode computes by itself, as routers arrange for short prompts,
is none that prefill counts at all. So only as many requests with fewer tokens accuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvcanary.deployment.facts import Facts, Role
from kvcanary.detect.accounting import SLACK_TOKENS, TOLERANCE
from kvcanary.record.exchange import Exchange
from kvcanary.record.window import Window, Work
from kvcanary.verdict.findings import Finding, Severity, named, stratum_of

FITS = 0.5
"""Part of the shortest refused prompt from which on a growth of decode's may be its."""
PLACEHOLDER_TOKENS = 2
"""What engines count for a refused request: SGLang one token in, one out."""


class Sum(StrEnum):
    """What the account of a window came to."""

    AGREES = "agrees"
    SHORT = "short"
    """Decode counted what was answered, prefill as many requests with fewer tokens."""
    WENT_ON = "went on"
    """Decode worked on, or holds pages for, what had been refused."""
    UNKNOWN = "unknown"
    """Other traffic, or something was not told."""
    NO_ACCOUNT = "no account"
    """Something in it was dropped on purpose or lost: nobody knows what it should count."""


@dataclass(frozen=True, slots=True)
class Account:
    """One window with its result. ``why``: the reason where it is unknown, else the figures."""

    window: Window
    result: Sum
    why: str
    refused: tuple[Exchange, ...] = ()

    @property
    def group(self) -> str:
        """The stage that it is about."""
        return self.window.group


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the responses of a window say."""

    answered: tuple[Exchange, ...]
    refused: tuple[Exchange, ...]

    @property
    def prompt_tokens(self) -> int:
        return sum(e.length_tokens for e in self.answered)

    @property
    def generation_tokens(self) -> int | None:
        known = [e.completion_tokens for e in self.answered]
        return None if None in known else sum(n for n in known if n is not None)

    @property
    def slack(self) -> float:
        """How far a count of prompt tokens may be off; nothing where the server told each."""
        unknown = [e for e in self.answered if e.prompt_tokens is None]
        return sum(max(SLACK_TOKENS, TOLERANCE * e.length_tokens) for e in unknown)


def accounts(windows: Sequence[Window], exchanges: Sequence[Exchange]) -> tuple[Account, ...]:
    """The account of each window."""
    by_number = {e.number: e for e in exchanges}
    return tuple(
        _account(window, [by_number[n] for n in window.exchanges if n in by_number])
        for window in windows
    )


def _account(window: Window, members: Sequence[Exchange]) -> Account:
    sent = _Sent(
        tuple(e for e in members if e.answered),
        tuple(e for e in members if e.outcome == "refused"),
    )
    if len(sent.answered) + len(sent.refused) < len(window.exchanges):
        return Account(window, Sum.NO_ACCOUNT, "")
    if window.decode is None or _incomplete(window.decode):
        return _unknown(window, "some decode worker did not tell its counters, or began anew")
    surplus = _surplus(window.decode, sent)
    if surplus.requests < 0 or surplus.prompt_tokens < -sent.slack:
        return _unknown(
            window, "decode counted less than the responses say: is some worker unknown?"
        )
    if sent.refused and (went_on := _went_on(window, sent, surplus)):
        return Account(window, Sum.WENT_ON, went_on, sent.refused)
    placeholders = PLACEHOLDER_TOKENS * len(sent.refused)
    generation = 0 if surplus.generation_tokens is None else surplus.generation_tokens
    if (
        surplus.requests > len(sent.refused)
        or surplus.prompt_tokens > sent.slack + placeholders
        or abs(generation) > placeholders
    ):
        return _unknown(
            window,
            f"decode counted {surplus.requests:,} requests and {surplus.prompt_tokens:,} prompt tokens "
            "more than this run sent: other traffic",
        )
    return _against_prefill(window, sent)


@dataclass(frozen=True, slots=True)
class _Surplus:
    requests: int
    prompt_tokens: int
    generation_tokens: int | None


def _incomplete(work: Work) -> bool:
    return work.requests is None or work.prompt_tokens is None


def _surplus(decode: Work, sent: _Sent) -> _Surplus:
    """What decode counted beyond the answers."""
    written, told = decode.generation_tokens, sent.generation_tokens
    return _Surplus(
        requests=(decode.requests or 0) - len(sent.answered),
        prompt_tokens=(decode.prompt_tokens or 0) - sent.prompt_tokens,
        generation_tokens=None if written is None or told is None else written - told,
    )


def _went_on(window: Window, sent: _Sent, surplus: _Surplus) -> str | None:
    """Decode's growth that fits refused prompts, with quiet before and after."""
    if not window.quiet:
        return None
    lengths = [e.length_tokens for e in sent.refused]
    most = sum(lengths) * (1 + TOLERANCE) + SLACK_TOKENS * len(lengths) + sent.slack
    fits = FITS * min(lengths) <= surplus.prompt_tokens <= most
    if fits and 0 < surplus.requests <= len(sent.refused):
        return (
            f"{len(lengths)} requests were refused; decode finished {surplus.requests} requests and "
            f"{surplus.prompt_tokens:,} prompt tokens that nobody got an answer to"
        )
    if window.held_tokens is not None and FITS * min(lengths) <= window.held_tokens <= most:
        return (
            f"{len(lengths)} requests were refused; decode's pools hold {window.held_tokens:,} tokens more "
            "than before, with no request open"
        )
    return None


def _against_prefill(window: Window, sent: _Sent) -> Account:
    prefill = window.prefill
    if prefill is None or prefill.requests is None or prefill.prompt_tokens is None:
        return _unknown(window, "some prefill worker did not tell its counters, or began anew")
    figures = (
        f"prefill counted {prefill.prompt_tokens:,} prompt tokens in {prefill.requests:,} requests, "
        f"decode {(window.decode and window.decode.prompt_tokens) or 0:,}; "
        f"the {len(sent.answered)} answers say {sent.prompt_tokens:,}"
    )
    slack = max(SLACK_TOKENS * len(sent.answered), TOLERANCE * sent.prompt_tokens)
    missing = sent.prompt_tokens - prefill.prompt_tokens
    if prefill.requests < len(sent.answered):
        return _unknown(window, f"{figures}: decode may have computed some prompts by itself")
    if prefill.requests > len(sent.answered) + len(sent.refused) or -missing > slack:
        return _unknown(window, f"{figures}: other traffic")
    return Account(window, Sum.SHORT if missing > slack else Sum.AGREES, figures)


def _unknown(window: Window, why: str) -> Account:
    return Account(window, Sum.UNKNOWN, why)


def findings(
    windows: Sequence[Window], exchanges: Sequence[Exchange], facts: Facts | None
) -> tuple[Finding, ...]:
    """Prompts that prefill did not compute, and refusals that did not end a request."""
    by_number = {e.number: e for e in exchanges}
    short: list[Account] = []
    went_on: list[tuple[Account, Sequence[Exchange]]] = []
    for account in accounts(windows, exchanges):
        if account.result is Sum.WENT_ON:
            went_on.append((account, account.refused))
        elif account.result is Sum.SHORT:
            short.append(account)
            members = [by_number[n] for n in account.window.exchanges]
            over = [e for e in members if e.answered and _over_prefill(e, facts)]
            went_on += [(account, over)] if over else []
    return (
        *((_short(short),) if short else ()),
        *((_not_terminal(went_on),) if went_on else ()),
    )


def _over_prefill(exchange: Exchange, facts: Facts | None) -> bool:
    """Whether every prefill worker refuses a prompt of that length, by its own word."""
    limits = [w.limit_tokens for w in facts.workers if w.role is Role.PREFILL] if facts else []
    known = [limit for limit in limits if limit is not None]
    return bool(known) and len(known) == len(limits) and exchange.length_tokens > max(known)


def _short(accounts: Sequence[Account]) -> Finding:
    groups = [account.group for account in accounts]
    return Finding(
        rule="accounting/prefill-decode",
        severity=Severity.ACCOUNTING,
        stratum=stratum_of(groups, "accounting"),
        title=f"prefill did not compute what decode answered from in {named(groups)}",
        evidence=tuple(f"`{account.group}`: {account.why}" for account in accounts),
        remedy="Decode answers from pages that prefill never filled: take these lengths out of service. "
        "Look in the prefill worker's log for these requests (X-Request-Id): refused, aborted, or replaced "
        "by a placeholder.",
        exchanges=tuple(n for account in accounts for n in account.window.exchanges),
    )


def _not_terminal(refused: Sequence[tuple[Account, Sequence[Exchange]]]) -> Finding:
    count = sum(len(those) for _, those in refused)
    groups = [account.group for account, _ in refused]
    return Finding(
        rule="accounting/refusal-not-terminal",
        severity=Severity.ACCOUNTING,
        stratum=stratum_of(groups, "accounting"),
        title=f"a refusal did not stop the hand-off of {count} request{'s' if count > 1 else ''} in "
        f"{named(groups)}",
        evidence=tuple(
            f"`{account.group}`: "
            + (
                account.why
                if account.result is Sum.WENT_ON
                else f"{len(those)} of the prompts are longer than every prefill worker accepts; {account.why}"
            )
            for account, those in refused
        ),
        remedy="A request that one worker refuses must end on all of them before any page is transferred. "
        "SGLang 0.5.20 retires refusals at both queue doors.",
        exchanges=tuple(e.number for _, those in refused for e in those),
    )
