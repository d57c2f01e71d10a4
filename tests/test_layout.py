"""The imports that ARCHITECTURE.md promises, read from the source with ``ast``.

A rule holds for every import, those inside functions and under ``TYPE_CHECKING`` included.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import kvcanary

PACKAGE = Path(kvcanary.__file__).resolve().parent
TESTS = Path(__file__).resolve().parent
MAX_LINES = 450

LAYERS: tuple[tuple[str, ...], ...] = (
    ("kvcanary", "kvcanary.errors", "kvcanary.data", "kvcanary.places"),
    ("kvcanary.canary",),
    # Values: what the arrows of the flow carry.
    (
        "kvcanary.record",
        "kvcanary.deployment.facts",
        "kvcanary.probing.sizing",
        "kvcanary.verdict.claims",
        "kvcanary.verdict.findings",
        "kvcanary.verdict.waivers",
    ),
    ("kvcanary.engines",),
    ("kvcanary.detect",),
    ("kvcanary.verdict",),
    ("kvcanary.selftest",),
    # The wire: one request out, one reply back.
    (
        "kvcanary.deployment.target",
        "kvcanary.probing.answer",
        "kvcanary.probing.client",
        "kvcanary.probing.endpoint",
        "kvcanary.probing.outcome",
        "kvcanary.probing.refusal",
        "kvcanary.probing.server_text",
        "kvcanary.probing.sse",
        "kvcanary.probing.tracebacks",
    ),
    ("kvcanary.telemetry",),
    ("kvcanary.probing",),
    ("kvcanary.deployment",),
    ("kvcanary.report", "kvcanary.scan"),
    ("kvcanary.run", "kvcanary.assess", "kvcanary.memory"),
    ("kvcanary.cli", "kvcanary.__main__", "kvcanary.pytest_plugin"),
)
"""A module belongs to the longest name here that it begins with, and imports from its own layer and
those above it. The lab stands beside: only ``cli`` starts it."""

HOMES = {
    "click": ("kvcanary.cli",),
    "rich": ("kvcanary.cli", "kvcanary.report"),
    "jinja2": ("kvcanary.report.html.document",),
    "junitparser": ("kvcanary.report",),
    "markupsafe": ("kvcanary.report.html.document",),
    "httpx": ("kvcanary.probing.client",),
    "yaml": ("kvcanary.probing.grammar", "kvcanary.probing.yaml_file"),
    "numpy": ("kvcanary.lab",),
    "hyperscan": ("kvcanary.scan.anchors",),
    "jmespath": ("kvcanary.scan.records",),
    "backports": ("kvcanary.scan.sources",),
    "packaging": ("kvcanary.detect.advisories",),
    "starlette": ("kvcanary.lab",),
    "uvicorn": ("kvcanary.lab",),
    "prometheus_client": (
        "kvcanary.lab",
        "kvcanary.engines.exposition",
        "kvcanary.report.metrics",
        "kvcanary.report.pushgateway",
        "kvcanary.report.textfile",
    ),
    "prometheus_api_client": ("kvcanary.telemetry.prometheus_api",),
    "requests": ("kvcanary.report.notify", "kvcanary.telemetry.prometheus_api"),
    "urllib3": ("kvcanary.report.notify", "kvcanary.telemetry.prometheus_api"),
    "pytest": ("kvcanary.pytest_plugin",),
    "pynvml": ("kvcanary.telemetry.nvml",),
    "scipy": ("kvcanary.canary.odds", "kvcanary.probing.sizing", "kvcanary.verdict.statistics"),
}
"""The only places that import a library."""

IO = {"asyncio", "http", "httpx", "os", "pathlib", "requests", "socket", "subprocess", "urllib"}
PURE = (
    "kvcanary.detect",
    "kvcanary.verdict",
    "kvcanary.selftest",
    "kvcanary.engines",
    "kvcanary.deployment.facts",
    "kvcanary.deployment.target",
    "kvcanary.probing.buying",
    "kvcanary.probing.deadlines",
    "kvcanary.probing.estimate",
    "kvcanary.probing.intrusive",
    "kvcanary.probing.lengths",
    "kvcanary.probing.manners",
    "kvcanary.probing.mechanisms",
    "kvcanary.probing.needs",
    "kvcanary.probing.plan",
    "kvcanary.probing.planned",
    "kvcanary.probing.planner",
    "kvcanary.probing.sizing",
    "kvcanary.report.figures",
    "kvcanary.report.json",
    "kvcanary.report.html.axis",
    "kvcanary.report.html.fate",
    "kvcanary.report.html.figure",
    "kvcanary.report.html.first_token",
    "kvcanary.report.html.ladder",
    "kvcanary.report.html.leaked_pages",
    "kvcanary.report.html.meetings",
    "kvcanary.report.html.page",
    "kvcanary.report.html.pool_use",
    "kvcanary.report.html.pools",
    "kvcanary.report.html.reach",
    "kvcanary.report.html.words",
    "kvcanary.report.junit",
    "kvcanary.report.markdown",
    "kvcanary.report.nagios",
    "kvcanary.report.places",
)
"""Pure cores: judged from values, tested without a network."""

FORBIDDEN = (
    ("kvcanary.canary", ("httpx", "http", "socket", "asyncio", "urllib", "click", "rich")),
    ("kvcanary.detect", ("kvcanary.cli", "kvcanary.probing", "kvcanary.report", "kvcanary.run")),
    ("kvcanary.report", ("kvcanary.cli", "kvcanary.run", "kvcanary.detect", "kvcanary.engines")),
)
"""(who, what it does not import)."""


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source: str) -> Iterator[str]:
    """Absolute names of what a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_of(name: str) -> str:
    """The module that an imported name stands in."""
    while name not in SOURCES:
        name = name.rpartition(".")[0]
    return name


IMPORTS = {name: frozenset(imported(path.read_text())) for name, path in SOURCES.items()}
MODULES = {
    name: frozenset(_module_of(i) for i in imports if _within(i, "kvcanary"))
    for name, imports in IMPORTS.items()
}


def _layer(module: str) -> int:
    homes = [(len(n), i) for i, names in enumerate(LAYERS) for n in names if _within(module, n)]
    # `kvcanary` itself is the package's __init__ only, and no home for what is new below it
    assert module == "kvcanary" or max(homes)[0] > len("kvcanary"), f"{module} has no layer"
    return max(homes)[1]


OUTSIDE_LAB = sorted(name for name in SOURCES if not _within(name, "kvcanary.lab"))


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 60
    assert "kvcanary.probing.client" in MODULES["kvcanary.probing.sender"]


@pytest.mark.parametrize("module", OUTSIDE_LAB)
def test_imports_follow_the_layers(module: str) -> None:
    above = _layer(module)
    for other in MODULES[module]:
        if _within(other, "kvcanary.lab"):
            assert _within(module, "kvcanary.cli"), f"only cli may start the lab, not {module}"
        else:
            assert _layer(other) <= above, f"{module} imports {other}, which is further down"


def test_no_modules_import_each_other() -> None:
    """TopologicalSorter raises CycleError with the modules in a circle."""
    graph = {name: others - {name} for name, others in MODULES.items()}
    tuple(TopologicalSorter(graph).static_order())


def test_the_canary_text_needs_nothing_but_the_errors() -> None:
    for module in (m for m in SOURCES if _within(m, "kvcanary.canary")):
        for other in MODULES[module]:
            assert _within(other, "kvcanary.canary") or other == "kvcanary.errors", module


def test_the_lab_knows_nothing_but_the_errors() -> None:
    for module in (m for m in SOURCES if _within(m, "kvcanary.lab")):
        for other in MODULES[module]:
            assert _within(other, "kvcanary.lab") or other == "kvcanary.errors", module


@pytest.mark.parametrize(("who", "what"), FORBIDDEN, ids=[who for who, _ in FORBIDDEN])
def test_what_a_package_does_not_know(who: str, what: tuple[str, ...]) -> None:
    for module in (m for m in SOURCES if _within(m, who)):
        for name in IMPORTS[module]:
            sizing = _within(name, "kvcanary.probing.sizing")
            assert sizing or not any(_within(name, other) for other in what), f"{module}: {name}"


def test_a_report_is_made_from_a_record() -> None:
    """Of what runs, a report knows only the events that progress listens to."""
    for module in (m for m in SOURCES if _within(m, "kvcanary.report")):
        for other in MODULES[module]:
            if _within(other, "kvcanary.probing"):
                assert other == "kvcanary.probing.events", f"{module}: {other}"


def test_pure_cores_do_no_io() -> None:
    pure = [m for m in SOURCES if any(_within(m, name) for name in PURE)]
    assert len(pure) > 15
    for module in pure:
        roots = {name.partition(".")[0] for name in IMPORTS[module]}
        assert not roots & IO, module
        calls = ast.walk(ast.parse(SOURCES[module].read_text()))
        opened = [n for n in calls if isinstance(n, ast.Name) and n.id in ("open", "print")]
        assert not opened, module


def test_everything_is_printed_on_a_console_that_ends_quietly() -> None:
    """rich's own exits 1 when its reader goes away, as if a claim had failed."""
    for module in SOURCES:
        if module not in ("kvcanary.report.console", "kvcanary.report.progress"):
            calls = (
                n
                for n in ast.walk(ast.parse(SOURCES[module].read_text()))
                if isinstance(n, ast.Call)
            )
            assert not any(ast.unparse(call.func).endswith("Console") for call in calls), module


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_a_home(library: str) -> None:
    users = [m for m, names in IMPORTS.items() if any(_within(n, library) for n in names)]
    assert users
    for module in users:
        assert any(_within(module, home) for home in HOMES[library]), f"{module} imports {library}"


def test_only_the_command_line_and_tests_import_the_lab() -> None:
    for folder in ("tools", "tests"):
        for path in (TESTS.parent / folder).rglob("*.py"):
            names = list(imported(path.read_text()))  # no relative imports here either
            if folder == "tools" and path.name != "generate_docs.py":  # it writes docs/lab.md
                assert not any(_within(name, "kvcanary.lab") for name in names), path


@pytest.mark.parametrize("module", SOURCES)
def test_no_module_is_too_long_to_read(module: str) -> None:
    lines = SOURCES[module].read_text().count("\n")
    assert lines <= MAX_LINES, f"{module} has {lines} lines: split it"
