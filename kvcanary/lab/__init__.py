"""The lab: a deployment in a box that leaks for the real reason.

Token ids are the KV. Pools are never cleared, pages are reused by policy, and the model copies from
what the page table points at. A fault is one predicate that is wrong; the leak follows.

Nothing here knows what kvcanary plants in its prompts.
"""

from kvcanary.lab.chances import ChosenFault, FaultKey
from kvcanary.lab.clock import Clock, ManualClock, WallClock
from kvcanary.lab.fault import Fault
from kvcanary.lab.faults import faults, with_fault
from kvcanary.lab.free_list import FreeListPolicy
from kvcanary.lab.habits import Habit, habits, with_habit
from kvcanary.lab.harm import ExchangeTruth, read_truth, write_truth
from kvcanary.lab.lab import Lab
from kvcanary.lab.routing import Routing
from kvcanary.lab.scenario import Dialect, Scenario, scenario_named, scenario_names, scenarios
from kvcanary.lab.sglang_info import WorkerAddress
from kvcanary.lab.truth import PageTruth, ReadTruth, RouteTruth, Truth

__all__ = [
    "ChosenFault",
    "Clock",
    "Dialect",
    "ExchangeTruth",
    "Fault",
    "FaultKey",
    "FreeListPolicy",
    "Habit",
    "Lab",
    "ManualClock",
    "PageTruth",
    "ReadTruth",
    "RouteTruth",
    "Routing",
    "Scenario",
    "Truth",
    "WallClock",
    "WorkerAddress",
    "faults",
    "habits",
    "read_truth",
    "scenario_named",
    "scenario_names",
    "scenarios",
    "with_fault",
    "with_habit",
    "write_truth",
]
