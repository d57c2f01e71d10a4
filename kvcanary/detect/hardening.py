"""Hardening: safety switches of the running engines that are off or cannot be seen. Advice, never a failure."""

from collections import defaultdict

from kvcanary.deployment.facts import Facts, Role, SwitchName
from kvcanary.verdict.claims import Advice

_WHY = {
    SwitchName.KV_CHECKSUM: "decode verifies the pages that prefill sends, so stale ones are seen",
    SwitchName.DEFERRED_RELEASE: "pages are not handed out again before their last reader is done",
    SwitchName.CACHE_SALT: "one tenant's cached prefix is not another's",
    SwitchName.NO_AUTO_TRUNCATE: "a prompt that is too long is refused, not cut and answered",
    SwitchName.POOL_CHECK: "the engine does not start with a pool below its context limit; where it does, run "
    "`kvcanary capacity` before it takes traffic",
}

_BETWEEN_ROLES = frozenset({SwitchName.KV_CHECKSUM})
"""Where one worker does both, nothing is sent that could be verified."""


def advice(facts: Facts) -> tuple[Advice, ...]:
    """One for each switch and way to set it, those that are known to be off first."""
    alike: dict[tuple[SwitchName, bool | None, str], list[str]] = defaultdict(list)
    for name, worker in zip(facts.names, facts.workers, strict=True):
        for switch in worker.switches:
            if switch.name in _BETWEEN_ROLES and worker.role is Role.UNIFIED:
                continue
            if switch.on is False or (switch.on is None and switch.flag):
                alike[switch.name, switch.on, switch.flag].append(name)
    found = [
        Advice(
            switch=switch.value,
            on=on,
            flag=flag,
            why=_WHY[switch],
            workers=tuple(dict.fromkeys(names)),
        )
        for (switch, on, flag), names in alike.items()
    ]
    order = list(SwitchName)
    return tuple(
        sorted(found, key=lambda a: (a.on is None, order.index(SwitchName(a.switch)), a.flag))
    )
