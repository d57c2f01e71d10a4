"""What the documentation says of a rule."""

import re
from functools import cache

from kvcanary.data import data_path

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def help_of(rule: str) -> str:
    """Its section of docs/findings.md as Markdown, without heading and links; empty where there is none."""
    return _LINK.sub(r"\1", _sections().get(rule, ""))


@cache
def _sections() -> dict[str, str]:
    parts = (data_path("docs") / "findings.md").read_text("utf-8").split("\n## ")[1:]
    split = (part.partition("\n") for part in parts)
    return {heading.strip(): body.strip() for heading, _, body in split}
