"""Messages to token ids, role tags included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcanary.lab.tokenizer import IntArray, Special, Tokenizer

_ROLES: Final = {
    "system": Special.SYSTEM,
    "developer": Special.SYSTEM,
    "user": Special.USER,
    "assistant": Special.ASSISTANT,
    "tool": Special.TOOL,
}
ROLES: Final = tuple(_ROLES)


@dataclass(frozen=True)
class Message:
    """One turn; ``role`` is one of `ROLES`."""

    role: str
    text: str


def chat_prompt(messages: tuple[Message, ...], tokenizer: Tokenizer) -> IntArray:
    """Begin, then a tag, the text and an end for each turn, then the assistant's tag."""
    parts = [np.array([Special.BEGIN], np.int32)]
    for message in messages:
        parts += [
            np.array([_ROLES[message.role]], np.int32),
            tokenizer.encode(message.text),
            np.array([Special.END], np.int32),
        ]
    parts.append(np.array([Special.ASSISTANT], np.int32))
    return np.concatenate(parts)
