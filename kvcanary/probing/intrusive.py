"""What of a probe others may feel who use the deployment at the same time. Pure."""

from kvcanary.probing.grammar import Abort, Fill, Probe, Read, Refuse, flat

MOST_BESIDE_TRAFFIC = 16
"""Requests that a deployment which serves others can be asked to take at the same time."""


def intrusive(probe: Probe) -> str | None:
    """None where that is little."""
    return next(filter(None, map(_felt, flat(probe.steps))), None)


def _felt(step: Fill | Read | Abort | Refuse) -> str | None:
    match step:
        case Fill():
            return f"it fills the pool (`{step.group}`)"
        case Abort():
            return f"it drops prompts while they are computed (`{step.group}`)"
        case Refuse():
            return f"it sends what has to be refused (`{step.group}`)"
        case Read() if step.overfill or step.total is not None:
            return f"it may ask for more than the pool holds (`{step.group}`)"
        case Read() if max(step.count, step.at_once or 0) > MOST_BESIDE_TRAFFIC:
            return f"it sends {step.count} requests, {step.at_once or 'some'} at a time (`{step.group}`)"
    return None
