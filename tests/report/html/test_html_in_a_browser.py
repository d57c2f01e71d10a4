"""The HTML report as a browser shows it: Debian's Chromium, driven without a window.

One browser for all tests; a page for each record, width and colour scheme.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from kvcanary.record.journal import load
from kvcanary.report.html import render
from tests import needs
from tests.cli.command import kvcanary
from tests.report.html.records import RECORDS

PHONE, DESKTOP = 390, 1_280
LABS = ("healthy", "glm-5.3")
NAMES = (*RECORDS, *LABS)
Pages = Callable[[str], Path]
LARGEST = 1_000_000
"""Bytes of a page."""


@dataclass
class Seen:
    """What a page did while it was opened."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = needs.program("chromium", "python3 tools/install_test_servers.py")
    with sync_playwright() as playwright:
        # root, as in CI, has no sandbox; what is opened is a file of our own
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The file of each record's page, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def page_of(name: str) -> Path:
        page = folder / f"{name}.html"
        if name in LABS:
            _checked(name, page)
        else:
            page.write_text(render(RECORDS[name]()), "utf-8")
        return page

    return page_of


def _checked(lab: str, page: Path) -> None:
    """The page of a lab, made by the command itself."""
    record = page.with_suffix(".jsonl")
    kvcanary(
        page.parent,
        *("check", f"lab:{lab}?context=65536", "--quiet", "--record", str(record)),
        *("--report", f"html={page}"),
    )
    assert page.read_text("utf-8") == render(load(record)), "made from the record alone"


def opened(
    browser: Browser, file: Path, width: int, scheme: str = "light", *, scripts: bool = True
) -> tuple[Page, Seen]:
    """The page, loaded; its context ends with the test's browser."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
    )
    page, seen = context.new_page(), Seen()
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(file.as_uri())
    return page, seen


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", NAMES)
def test_it_fits_and_asks_for_nothing(
    name: str, width: int, browser: Browser, pages: Pages
) -> None:
    """No sideways scrolling, nothing from anywhere, no complaint of the browser's, all pictures drawn."""
    file = pages(name)
    page, seen = opened(browser, file, width)
    assert file.stat().st_size < LARGEST
    assert seen.complaints == []
    assert seen.requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    figures = page.locator("figure").all()
    for figure in figures:
        drawing = figure.locator(".drawing, .matrix").first.bounding_box()
        assert drawing
        assert drawing["width"] > 100
        assert drawing["height"] > 20
    assert len(figures) + page.locator(".missing li").count() == 7
    assert page.evaluate(MARKS_OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []
    page.context.close()


MARKS_OUTSIDE = """() => [...document.querySelectorAll(
  '.drawing .m, .drawing .bar, .drawing text')].filter(mark => {
  const m = mark.getBoundingClientRect();
  return m.width === 0 || m.left < 0 || m.right > document.documentElement.clientWidth;
}).map(mark => mark.outerHTML)"""
OVERLAPS = """() => [...document.querySelectorAll('.ticks, .lanes, .track')].flatMap(row => {
  const texts = [...row.querySelectorAll(':scope > span, :scope > .flag > text')];
  const boxes = texts.map(text => text.getBoundingClientRect());
  boxes.sort((a, b) => a.left - b.left);
  return boxes.filter((box, n) => n && box.left < boxes[n - 1].right).map(() => row.textContent);
})"""


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("leaking", "light"), ("leaking", "dark"), ("hostile", "light"), ("glm-5.3", "dark")],
)
def test_it_is_accessible(name: str, scheme: str, browser: Browser, pages: Pages) -> None:
    """By axe-core: contrast, headings, names of pictures, heads of tables."""
    page, _ = opened(browser, pages(name), DESKTOP, scheme)
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found] == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
    page.context.close()


PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 19, 23)"}


def test_everything_is_there_without_scripts(browser: Browser, pages: Pages) -> None:
    file = pages("glm-5.3")
    assert "<script" not in file.read_text("utf-8").lower()
    page, _ = opened(browser, file, DESKTOP, scripts=False)
    text = page.locator("body").inner_text()
    for said in ("FAIL", "hold text of other requests", "What to do.", "kvcanary replay RECORD F1"):
        assert said in text
    assert page.locator("figure").count() == 6, "all but the meetings of one pair"
    assert page.locator(".m.leak").count() > 4
    page.context.close()


def test_hostile_text_is_only_text(browser: Browser, pages: Pages) -> None:
    """Nothing of it runs, is a link or an element, or turns the direction of what stands around it."""
    page, seen = opened(browser, pages("hostile"), PHONE)
    assert seen.complaints == []
    assert page.locator("script, img, iframe, a[href^='http'], a[href^='javascript']").count() == 0
    text = page.locator("body").inner_text()
    assert "<script>alert(1)</script>" in text
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066"} & set(text)
    page.context.close()


def test_on_paper_nothing_is_folded_and_colours_are_light(browser: Browser, pages: Pages) -> None:
    page, _ = opened(browser, pages("leaking"), DESKTOP, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER["light"]
    assert not page.locator("nav").is_visible()
    assert page.locator("details table").first.is_visible()
    page.context.close()
