"""Hooks of mkdocs: what lies outside docs/ and is linked from there becomes part of the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
"""Pages by their names here and on the site."""
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages, and every other file that a page links to."""
    for name, there in PAGES.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / name)))
    texts = [ROOT / name for name in PAGES] + list((ROOT / "docs").glob("*.md"))
    linked = {
        target
        for text in texts
        for _, link, _ in _LINK.findall(text.read_text("utf-8"))
        if (target := _outside(text, link))
    }
    for target in sorted(linked):
        files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links as they hold on the site, where everything lies in one folder."""
    here = next((n for n, there in PAGES.items() if there == page.file.src_uri), None)
    source = ROOT / here if here else ROOT / "docs" / page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        before, path, after = link.groups()
        whole = (source.parent / path).resolve()
        if ":" in path or not whole.is_file():
            return link[0]
        name = whole.relative_to(ROOT).as_posix()
        return before + PAGES.get(name, name.removeprefix("docs/")) + after

    return _LINK.sub(moved, markdown)


def _outside(text: Path, link: str) -> str | None:
    """A file of the project that is no page, by its path from the top."""
    whole = (text.parent / link).resolve()
    if ":" in link or not whole.is_file() or not whole.is_relative_to(ROOT):
        return None
    name = whole.relative_to(ROOT).as_posix()
    return None if name in PAGES or name.startswith("docs/") else name
