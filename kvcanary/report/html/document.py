"""From a record to the text of the page. The same record always gives the same bytes.

Everything that the template writes goes through ``plain`` and is escaped: names and notes come from servers,
records from anywhere.
"""

import re

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from kvcanary.data import data_path
from kvcanary.record.run import RunRecord
from kvcanary.report.html.page import page_of
from kvcanary.report.html.words import percent
from kvcanary.report.printable import printable

TEMPLATES = "reports"
MAX_TEXT = 600
"""Characters that are shown of any one text."""
_PATH = re.compile(r"[MHVZ0-9e. -]*")
_QUOTED = re.compile(r"`([^`]{1,200})`")
_STACKED = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{2})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def render(record: RunRecord) -> str:
    """The page as HTML text. It names no path: where the record lies is not in it."""
    folder = data_path(TEMPLATES) / "html"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"prose": prose, "percent": percent, "path": path}
    style = Markup((folder / "style.css").read_text("utf-8"))  # noqa: S704 - our own file
    return environment.get_template("page.html").render(page=page_of(record), style=style)


def plain(value: object) -> object:
    """A text with printable characters only, bounded: no terminal escapes, no override of the writing's
    direction, no pile of accents. Other values as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    kept = value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + " \u2026"
    return _STACKED.sub(r"\1", printable(kept, kept="\u00a0"))


def prose(value: str) -> Markup:
    """A sentence of ours: names in backticks become code."""
    text = str(escape(plain(value)))
    return Markup(_QUOTED.sub(r"<code>\1</code>", text))  # noqa: S704 - escaped above


def path(drawn: str) -> Markup:
    """The path of a curve, however long. Raises ValueError for what is none."""
    if not _PATH.fullmatch(drawn):
        raise ValueError("a path holds numbers and four letters")
    return Markup(drawn)  # noqa: S704 - matched above
