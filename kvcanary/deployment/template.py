"""The text of a new deployment file: what was discovered as keys, what was not as comments that say how to
find it.

What a server said (names of models, addresses) is quoted, and left out where it is no plain text.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.probing.endpoint import UNNAMED, Api, Endpoint

MAX_NAMED = 20
"""Models that are written down."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_URL = re.compile(r"https?://[A-Za-z0-9._-]+(:[0-9]+)?(/[A-Za-z0-9._/-]*)?")
_SAFE = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class Found:
    """What the front door and its workers told.

    Attributes:
        endpoint: as it was asked; its model is ``UNNAMED`` where it has to be chosen.
        schema: where the JSON Schema of the file lies.
        models: what is served.
        key_variable: the environment variable that holds the key.
        needs_key: whether a key was given, or asked for.
        notes: what could not be asked, in our own words.
    """

    endpoint: Endpoint
    schema: str
    models: tuple[str, ...]
    facts: Facts | None
    key_variable: str
    needs_key: bool
    trust_discovered: bool = False
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> str | None:
        """The model to test, where that is known."""
        return None if self.endpoint.model == UNNAMED else self.endpoint.model


def deployment_text(found: Found) -> str:
    """A deployment file that ``check`` takes as it is."""
    return "\n".join(
        [*_head(found), "", *_front_door(found), "", *_promises(found.facts), "", *_rest(found)]
    )


def scalar(text: str) -> str:
    """A YAML value that reads as this very text: a variable's dollar doubled, quotes where they are needed."""
    if _URL.fullmatch(text) or (_PLAIN.fullmatch(text) and _is_word(text)):
        return text
    return json.dumps(text.replace("$", "$$"))


def _is_word(text: str) -> bool:
    """Whether YAML takes it for text, and not for a number, a day or a switch."""
    letters = sum(c.isalpha() for c in text)
    return text[0].isalpha() and letters > 1 and text.lower() not in _SWITCHES


_SWITCHES = ("true", "false", "yes", "no", "on", "off", "null")


def _head(found: Found) -> Iterator[str]:
    yield f"# yaml-language-server: $schema={found.schema}"
    yield "# A deployment, for `kvcanary check`: what is tested, how it is reached, what it promises."
    yield "# ${NAME} is an environment variable: keys and other secrets do not stand in this file."
    yield "# Every key is explained in docs/deployment-file.md, or by an editor that reads the schema."
    for note in found.notes:
        yield f"# {note}"


def _front_door(found: Found) -> Iterator[str]:
    endpoint = found.endpoint
    yield "front_door:"
    yield f"  url: {scalar(endpoint.base_url)}"
    yield from _model(found)
    chat = endpoint.api is Api.CHAT
    yield f"  {'# api: completions  # default: chat' if chat else 'api: completions'}"
    yield f"  {'# stream: false  # default: true' if endpoint.stream else 'stream: false'}"
    if found.needs_key:
        yield f"  key: ${{{found.key_variable}}}"
    else:
        yield f"  # key: ${{{found.key_variable}}}  # it answered without one"
    yield "  # headers: {X-Team: canary}"
    yield "  # body: {reasoning_effort: low}"


def _model(found: Found) -> Iterator[str]:
    if found.model:
        yield f"  model: {scalar(found.model)}"
        return
    served = [scalar(name) for name in found.models if _SAFE.fullmatch(name)]
    more = f" and {len(served) - MAX_NAMED} more" if len(served) > MAX_NAMED else ""
    if served:
        yield f"  # model: NAME  # has to be chosen; served: {', '.join(served[:MAX_NAMED])}{more}"
    else:
        yield "  # model: NAME  # not told: ask whoever runs it, or see what its customers send as `model`"


def _promises(facts: Facts | None) -> Iterator[str]:
    context = facts.context_tokens if facts else None
    if facts and context:
        yield "promises:"
        yield f"  context: {context}  # by {facts.context_source}; what customers are told counts"
        indent = "  "
    else:
        yield "# promises:"
        yield "#   context: 131072  # not told: the longest request that customers are promised, in tokens"
        indent = "#   "
    start = "# " if indent == "  " else ""
    output = min(8192, (context or 131072) // 8)
    yield f"{indent}{start}output: {output}  # the output that customers may ask for, within the context"


def _rest(found: Found) -> Iterator[str]:
    yield "# One identity for each customer key that you have for tests: mix-ups between keys need two."
    yield "# tenants:"
    yield "#   - key: ${TENANT_A_KEY}"
    yield "#     cache_salt: ${TENANT_A_SALT}"
    yield "#   - key: ${TENANT_B_KEY}"
    yield "#     cache_salt: ${TENANT_B_SALT}"
    yield ""
    yield from _workers(found)
    yield ""
    if found.trust_discovered:
        yield "trust_discovered: true"
    if found.endpoint.trust_env:
        yield "trust_env: true"
    if found.endpoint.ca_file:
        yield "tls:"
        yield f"  ca_file: {scalar(found.endpoint.ca_file)}"
    else:
        yield "# A private authority, a client certificate:"
        yield "# tls:"
        yield "#   ca_file: ca.pem"
        yield "#   certificate_file: client.pem"
        yield "#   key_file: client.key"
    yield ""
    yield "# Where the workers' metrics are scraped: pools, roles and GPUs are read there."
    yield "# prometheus:"
    yield "#   url: http://prometheus:9090"
    yield "#   labels: {job: llm}"
    yield "#   role_label: role"
    yield ""
    yield "# Findings that somebody has answered for, until a day:"
    yield "# waivers:"
    yield "#   - rule: capacity/pool-below-context"
    yield "#     reason: who says so, and why"
    yield "#     until: 2030-01-31"
    yield ""


def _workers(found: Found) -> Iterator[str]:
    """The front door itself is asked anyway, with its key."""
    door = found.endpoint.base_url.removesuffix("/v1")
    workers = found.facts.workers if found.facts else ()
    named = [w for w in workers if w.url != door]
    placed = [w for w in named if w.url.startswith("http") and _SAFE.fullmatch(w.url)]
    lost = Counter(worker.role for worker in named if worker not in placed)
    for role, count in lost.items():
        them = "workers" if count > 1 else "worker"
        yield f"# {count} {role} {them} cannot be asked, since no URL is known: add it below."
    if not placed:
        yield (
            "# The front door is an engine itself. Workers behind a router would be named so:"
            if any(w.url == door for w in workers)
            else "# No worker could be asked. Name them, so that capacity can be judged:"
        )
        yield "# workers:"
        yield "#   prefill:"
        yield "#     - url: http://prefill-0:30000"
        yield "#   decode:"
        yield "#     - url: http://decode-0:30000"
        yield "#       metrics: http://decode-0:9100/metrics  # where it is not /metrics of the url"
        return
    yield "# As the front door lists them. No key is sent to a worker that has none here (key: ${NAME})."
    yield "workers:"
    for role in Role:
        mine = [worker for worker in placed if worker.role is role]
        if mine:
            yield f"  {role.value}:"
        for worker in mine:
            yield f"    - url: {scalar(worker.url)}{_told(worker)}"


def _told(worker: Worker) -> str:
    pool = "pool unknown" if worker.pool_tokens is None else f"pool {worker.pool_tokens:,} tokens"
    engine = f"{worker.engine}, " if _PLAIN.fullmatch(worker.engine) else ""
    return f"  # {engine}{pool}"
