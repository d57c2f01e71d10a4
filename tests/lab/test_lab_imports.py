"""The lab cannot know what kvcanary plants."""

import ast
from pathlib import Path

import kvcanary.lab

PACKAGE = Path(kvcanary.lab.__file__).parent


def imported(source: str) -> set[str]:
    """Absolute names of what a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_lab_imports_nothing_of_kvcanary_but_itself_and_the_errors() -> None:
    modules = list(PACKAGE.rglob("*.py"))
    assert len(modules) > 20
    for module in modules:
        for name in imported(module.read_text()):
            if name.split(".")[0] == "kvcanary":
                assert name.startswith(("kvcanary.lab.", "kvcanary.errors.")), (module, name)
            assert not name.startswith("importlib") or name == "importlib.resources"


def test_the_public_names_are_there() -> None:
    assert sorted(kvcanary.lab.__all__) == kvcanary.lab.__all__
    assert all(hasattr(kvcanary.lab, name) for name in kvcanary.lab.__all__)
