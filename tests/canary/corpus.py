"""A hundred megabytes of ordinary text, the same everywhere, made in seconds: prose and identifiers."""

import base64
import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path

from kvcanary.canary.codes import ALPHABET

MEGABYTE = 1_000_000
Maker = Callable[[random.Random], str]


def prose(megabytes: int, seed: int = 7) -> Iterator[str]:
    """Made-up encyclopaedia English, a megabyte a time: 4 MB of it, then its sentences shuffled.

    Word pairs and their successors as in Wikipedia (essential-generators, MIT).
    """
    model = json.loads(files("essential_generators").joinpath("markov_textgen.json").read_bytes())
    rng = random.Random(seed)
    states = list(model)
    words: list[str] = []
    size, state = 0, rng.choice(states)
    while size < min(megabytes, 4) * MEGABYTE:
        entry = model.get(state)
        if not entry or not entry["transitions"]:
            state = rng.choice(states)
            continue
        word = rng.choices(entry["transitions"], entry["weights"])[0]
        words.append(word)
        size += len(word) + 1
        state = f"{entry['right']} {word}"
    sentences = re.split(r"(?<=[.!?]) ", " ".join(words))
    for _ in range(-(-megabytes // 4)):
        text = " ".join(sentences)
        for at in range(0, min(megabytes, 4) * MEGABYTE, MEGABYTE):
            yield text[at : at + MEGABYTE]
        rng.shuffle(sentences)


def source(megabytes: int) -> Iterator[str]:
    """Programs: those of the standard library, in the order of their names."""
    modules = sorted(Path(json.__file__).parent.parent.rglob("*.py"))
    own = (path for path in modules if "site-packages" not in path.parts)
    text = ""
    for path in own:
        text += path.read_text("utf-8", "replace")
        if len(text) >= MEGABYTE:
            yield text[:MEGABYTE]
            text, megabytes = "", megabytes - 1
        if not megabytes:
            return


def _uuid(rng: random.Random) -> str:
    digits = rng.randbytes(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _in_groups(text: str, size: int, separator: str) -> str:
    return separator.join(text[at : at + size] for at in range(0, len(text), size))


def _licence(rng: random.Random) -> str:
    return "-".join("".join(rng.choices(ALPHABET, k=4)) for _ in range(4))


def _part_number(rng: random.Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=rng.randint(2, 4)))
    return f"{letters}{rng.randrange(100, 99_999)}-{rng.choice('ABCDX')}{rng.randrange(100)}"


def _date(rng: random.Random) -> str:
    start = datetime(1990, 1, 1, tzinfo=UTC)
    return (start + timedelta(seconds=rng.randrange(10**9))).isoformat()


def _log_line(rng: random.Random) -> str:
    return (
        f"{_date(rng)} worker-{rng.randrange(64)} INFO request={rng.randbytes(6).hex()} "
        f"took {rng.randrange(10**5)}ms status=200 bytes={rng.randrange(10**7)}\n"
    )


IDENTIFIERS: dict[str, Maker] = {
    "UUIDs": _uuid,
    "hashes": lambda rng: rng.randbytes(32).hex(),
    "hashes in capitals": lambda rng: rng.randbytes(20).hex().upper(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(600)).decode(),
    "base64, wrapped": lambda rng: base64.encodebytes(rng.randbytes(570)).decode(),
    "base32": lambda rng: base64.b32encode(rng.randbytes(40)).decode(),
    "base32, lower case": lambda rng: base64.b32encode(rng.randbytes(40)).decode().lower(),
    "base32, dashed": lambda rng: _in_groups(base64.b32encode(rng.randbytes(40)).decode(), 4, "-"),
    "base32, wrapped": lambda rng: _in_groups(
        base64.b32encode(rng.randbytes(400)).decode(), 64, "\n"
    ),
    "licence keys": _licence,
    "part numbers": _part_number,
    "dates": _date,
    "log lines": _log_line,
}


def identifiers(megabytes: int, seed: int = 11) -> Iterator[str]:
    """Fresh ones all the way, each kind in turn, a megabyte a time."""
    rng = random.Random(seed)
    for maker in islice(cycle(IDENTIFIERS.values()), megabytes):
        yield joined(maker, MEGABYTE, rng)


def joined(maker: Maker, size: int, rng: random.Random) -> str:
    """``size`` characters of one kind of identifier."""
    parts: list[str] = []
    while size > 0:
        parts.append(maker(rng))
        size -= len(parts[-1]) + 1
    return " ".join(parts)
