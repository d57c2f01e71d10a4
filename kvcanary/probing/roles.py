"""Who is who in a run: its tenants by index, and the fields that turn thinking off."""

from kvcanary.canary.prompt import Shape
from kvcanary.probing.endpoint import Extra
from kvcanary.probing.sizing import Thinking

CALIBRATOR, DECOY, BYSTANDER = 0, 1, 2
READERS = (3, 4, 5)
SIMULATED = 6
FIRST_VICTIM = 7
MAX_VICTIMS = 16
MOST_AT_ONCE = 64
"""Requests of one step in flight at the same time."""
TENANTS = FIRST_VICTIM + MAX_VICTIMS
"""Tenants of a run, by index in its cast."""

SOURCE_SHAPE = Shape(2, 2, 0)
"""The text that simulated leaks are cut from."""

SWITCHES: dict[Thinking, tuple[tuple[str, Extra], ...]] = {
    Thinking.OFF_BY_EFFORT: (("reasoning_effort", "none"),),
    Thinking.OFF_BY_TEMPLATE: (("chat_template_kwargs", (("enable_thinking", False),)),),
}
