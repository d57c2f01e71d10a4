"""Faults by name: each is a predicate that is wrong at the edge where the real bug lived.

A fault may bring along what it needs: a feature that deployments can have and that is sound without
the fault, or pools of another size.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kvcanary.errors import UsageError
from kvcanary.lab.chances import ChosenFault
from kvcanary.lab.fault import Fault
from kvcanary.lab.faults_of_pages import FAULTS_OF_PAGES
from kvcanary.lab.faults_of_service import FAULTS_OF_SERVICE
from kvcanary.lab.scenario import Scenario

_FAULTS: Final = {fault.key.value: fault for fault in (*FAULTS_OF_PAGES, *FAULTS_OF_SERVICE)}


def with_fault(scenario: Scenario, text: str) -> Scenario:
    """The scenario with the fault ``KEY[:RATE][@TOKENS]``.

    ``RATE`` is a number from 0 to 1, or ``1/K``: each K-th opportunity. ``@TOKENS``: only for longer
    prompts. Raises UsageError for unknown keys (with the nearest known one) and for values that
    make no sense.
    """
    head, at, tokens = text.partition("@")
    name, colon, rate = head.partition(":")
    fault = _FAULTS.get(name)
    if fault is None:
        near = difflib.get_close_matches(name, _FAULTS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "; see `kvcanary lab list --faults`"
        raise UsageError(f"there is no fault {name!r}{hint}")
    if any(chosen.key is fault.key for chosen in scenario.faults):
        raise UsageError(f"the fault {name!r} was chosen twice")
    chosen = ChosenFault(fault.key, fault.usual_rate)
    if colon:
        chosen = replace(chosen, **_rate(text, rate))
    if at:
        chosen = replace(chosen, above_tokens=_tokens(text, tokens))
    elif fault.usual_above is not None:
        chosen = replace(chosen, above_tokens=fault.usual_above(scenario))
    brought = fault.brings(scenario)
    return replace(brought, faults=(*brought.faults, chosen))


def faults() -> Iterable[Fault]:
    """All faults, kind by kind."""
    return _FAULTS.values()


def fault_of(key: str) -> Fault:
    """The fault of that key. Raises KeyError."""
    return _FAULTS[key]


def _rate(text: str, value: str) -> dict[str, Any]:
    whole, _, every = value.partition("/")
    if whole == "1" and every.isascii() and every.isdecimal() and int(every) > 0:
        return {"every": int(every)}
    try:
        rate = float(value)
    except ValueError:
        rate = math.nan
    if not 0 <= rate <= 1:
        raise UsageError(f"{text!r}: a rate is a number from 0 to 1, or 1/K, not {value!r}")
    return {"rate": rate}


def _tokens(text: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(f"{text!r}: behind @ stands a number of tokens, not {value!r}")
    return int(value)
