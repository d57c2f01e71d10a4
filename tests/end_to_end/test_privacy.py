"""kvcanary never becomes the leak: secrets of others and of its user reach no output and no file.

A server plants somebody's text and keys in every place that a server can write to; the real commands run
against it, and everything they printed and wrote is searched.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kvcanary.cli import COMMANDS
from kvcanary.record.exchange import Form
from kvcanary.record.journal import load
from tests.cli.command import Ended, against, environment, kvcanary, records
from tests.end_to_end.planted import CUSTOMER, ERRORS, SECRETS, USER_KEY, Everywhere, server

ROOT = Path(__file__).resolve().parent.parent.parent
KEEP = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
DEVELOPER = {"PYTHONDEVMODE": "1", "PYTHONFAULTHANDLER": "1", "PYTHONASYNCIODEBUG": "1"}
"""Everything that Python can be made to say besides."""


def own_environment(folder: Path) -> dict[str, str]:
    """The key, and no place to write to but ``folder``."""
    return {"KVCANARY_API_KEY": USER_KEY, "HOME": str(folder), "TMPDIR": str(folder), **DEVELOPER}


def everything_written(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        yield "a file's name", path.name
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")


def assert_nothing_leaked(folder: Path, ended: Iterable[Ended], secrets: Iterable[str]) -> None:
    outputs = [("output", text) for one in ended for text in (one.out, one.err)]
    for place, text in (*outputs, *everything_written(folder)):
        for secret in secrets:
            assert secret not in text, f"{secret[:12]}... in {place}"


def checked(everywhere: Everywhere, folder: Path, *arguments: str) -> list[Ended]:
    """``check`` with every report, and ``report`` of what it left."""
    reports = folder / "reports"
    reports.mkdir(exist_ok=True)
    hook = folder / "hook.py"
    hook.write_text(KEEP)
    (ended,) = against(
        server(everywhere),
        folder,
        [
            *("check", "URL", "--model", "tiny", "--context", "4096", "--deadline", "5"),
            *("--report", f"junit={reports / 'junit.xml'}"),
            *("--report", f"json={reports / 'record.json'}"),
            *("--on-leak", f"{sys.executable} {hook} {reports / 'told.json'}"),
            *arguments,
        ],
        extra=own_environment(folder),
    )
    shown = [kvcanary(folder, "report", str(path), "-o", "json") for path in records(folder)]
    shown += [kvcanary(folder, "report", str(path)) for path in records(folder)]
    assert shown, "a record is left whatever happens"
    return [ended, *shown]


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_nothing_that_an_answer_holds_is_printed_or_written(
    api: str, stream: str, tmp_path: Path
) -> None:
    everywhere = Everywhere()
    ended = checked(everywhere, tmp_path, "--suite", "smoke", "--api", api, stream)
    assert "Traceback" not in ended[0].err
    assert everywhere.told, "earlier requests were given away"
    assert_nothing_leaked(tmp_path, ended, (*SECRETS, *everywhere.told))
    assert not any(secret in everywhere.processes for secret in SECRETS)
    # the guard: what was planted was read, and called what it is
    (path,) = records(tmp_path)
    record = load(path)
    assert any(e.kept for e in record.exchanges)
    assert {t.form for e in record.exchanges for t in e.foreign} >= {Form.CODE, Form.PHRASE}
    assert ended[0].code == 1
    assert (tmp_path / "reports" / "told.json").stat().st_size > 100, "the hook was told"


@pytest.mark.parametrize("error", ERRORS)
def test_nothing_that_an_error_says_is_printed_or_written(error: str, tmp_path: Path) -> None:
    (ended,) = against(
        server(ERRORS[error]()),
        tmp_path,
        ["check", "URL", "--model", "tiny", "--context", "4096", "--deadline", "5"],
        extra=own_environment(tmp_path),
    )
    assert ended.code in (2, 3)
    assert "Traceback" not in ended.err
    assert "kvcanary itself failed" not in ended.err
    assert_nothing_leaked(tmp_path, [ended], SECRETS)


SENDING: dict[str, list[str]] = {
    "plan": ["plan", "URL", "--model", "tiny", "--context", "4096"],
    "capacity": ["capacity", "URL", "--model", "tiny", "--context", "4096"],
    "init": ["init", "URL", "--model", "tiny", "-o", "FILE"],
    "replay": ["replay", "RECORD", "F1", "--target", "URL"],
}
SILENT = {
    *("check", "report", "lab", "probes", "suites", "explain", "advisories", "selftest"),
    *("completion", "metrics", "scan"),
}
"""Tested above, or never in touch with a server."""


def test_every_command_that_talks_to_a_server_is_tested() -> None:
    assert set(COMMANDS) - SILENT == set(SENDING)


def test_nor_does_any_other_command(tmp_path: Path) -> None:
    everywhere = Everywhere()
    ended = checked(everywhere, tmp_path)
    (path,) = records(tmp_path)
    files = {"RECORD": str(path), "FILE": str(tmp_path / "deployment.yaml")}
    commands = [[files.get(word, word) for word in words] for words in SENDING.values()]
    sent = against(server(everywhere), tmp_path, *commands, extra=own_environment(tmp_path))
    assert all(one.out for one in sent[:-1]), "each said something"
    rules = sorted({finding.rule for finding in load(path).findings})
    ended += [*sent, *(kvcanary(tmp_path, "explain", rule) for rule in rules)]
    assert not any("Traceback" in one.err for one in ended)
    assert_nothing_leaked(tmp_path, ended, (*SECRETS, *everywhere.told))


# -- tracebacks ------------------------------------------------------------------------------------

FAILS = """
import asyncio

from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.sitekey import SiteKey
from kvcanary.probing import sender
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey
from tests.end_to_end.planted import USER_KEY, Everywhere, server
from tests.probing.rogue_server import rogue_server


def endpoint_at(url):
    return Endpoint(url, "tiny", api_key=SecretKey(USER_KEY), headers=(("X-Team", SecretKey(USER_KEY)),))


def test_a_reply_is_in_a_frame():
    async def go():
        async with rogue_server(server(Everywhere())) as rogue:
            endpoint = endpoint_at(rogue.base_url)
            async with Client(endpoint) as client:
                request = Request("a", PlainText("KVC-A b. c. d"), 1, "u")
                reply = await client.send(request, deadline_seconds=60)
                content, reasoning, other = reply.texts
                assert len(content) and len(reasoning) and len(other)
                listing = await client.get_json(rogue.base_url + "/models", with_key=True)
                assert listing.value
                assert reply.content == "what was expected"

    site_key = SiteKey(bytes(range(32)))
    asyncio.run(go())


def test_reading_fails(monkeypatch, tmp_path):
    from kvcanary.deployment.target import Target
    from kvcanary.run import Options, run_check

    def fails(self, text, own=None):
        folded = text.lower()
        raise LookupError("a fault of ours")

    async def go():
        async with rogue_server(server(Everywhere())) as rogue:
            target = Target("t", endpoint_at(rogue.base_url), context_tokens=4096)
            await run_check(target, Options(record=tmp_path / "r.jsonl"))

    monkeypatch.setattr(Recogniser, "read", fails)
    asyncio.run(go())
"""


def test_a_failing_test_with_locals_shows_nothing(tmp_path: Path) -> None:
    """``pytest --showlocals`` prints the repr of everything that is held while a test fails."""
    test = tmp_path / "test_fails.py"
    test.write_text(FAILS)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--showlocals", "-vv", "--full-trace"),
            *("-p", "no:cacheprovider", "--log-level=DEBUG", str(test)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path, {**own_environment(tmp_path), "PYTHONPATH": str(ROOT)}),
        timeout=120,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert "2 failed" in said
    assert "characters of a server's text" in said
    assert "a fault of ours" in said
    assert "SecretKey(***)" in said
    assert bytes(range(32)).hex() not in said
    assert "x01\\x02\\x03\\x04" not in said
    assert_nothing_leaked(tmp_path / "nowhere", [Ended(0, said, "")], SECRETS)


def test_what_the_server_s_text_is_called_does_not_depend_on_it() -> None:
    assert json.dumps(CUSTOMER)[1:-1] == CUSTOMER, "it would be found as it is in JSON"
