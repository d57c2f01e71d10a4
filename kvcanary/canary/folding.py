"""Text as it comes back: undo what servers, gateways and models do to a marker on the way."""

import re
import unicodedata

_JSON_ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|([nrtbf\"/]))")
"""However often the text was escaped: each time doubles the backslashes."""
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_ALPHANUMERIC = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHER_BYTES = bytes(set(range(256)).difference(_ALPHANUMERIC))
_WORD = re.compile(r"[a-z]+")


def fold(text: str) -> str:
    """Undo JSON escapes, compatibility forms (full-width and the like) and invisible characters."""
    if "\\" in text:
        text = _JSON_ESCAPE.sub(_unescape, text)
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return text


def squash(folded: str) -> str:
    """Upper-case letters and digits only: separators, Markdown and line breaks are gone."""
    return folded.upper().encode("ascii", "ignore").translate(None, _OTHER_BYTES).decode("ascii")


def words(folded: str) -> list[str]:
    """The ASCII words of a text in lower case, in order."""
    return _WORD.findall(folded.lower())


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return match[2] if match[2] in '"/' else " "
