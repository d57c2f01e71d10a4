"""--notify and what is remembered: told once at a change, without secrets, and without a say in the verdict."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
import pytest

from kvcanary.cli.watch import Watch
from kvcanary.errors import UsageError
from kvcanary.memory import Diary, Memory
from kvcanary.record.notice import Notice, Outcome
from kvcanary.record.run import RunRecord
from kvcanary.report import notify
from kvcanary.verdict.claims import ExitCode, Status
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import finding, healthy
from tests.cli.command import kvcanary

SECRET = "T0K3N-in-the-path"


class Webhook:
    """What a receiver got, and with which statuses it answers, the last for good."""

    def __init__(self, statuses: list[int]) -> None:
        self.statuses, self.bodies, self.url = statuses, list[bytes](), ""

    @property
    def told(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]


@contextmanager
def webhook(*statuses: int) -> Iterator[Webhook]:
    hook = Webhook(list(statuses) or [200])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status = hook.statuses.pop(0) if len(hook.statuses) > 1 else hook.statuses[0]
            self.send_response(status)
            self.send_header("Location", f"{hook.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_port}/{SECRET}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def record(status: Status) -> RunRecord:
    found = (finding(severity=Severity.LEAK),) if status is Status.FAIL else ()
    run = healthy(findings=found)
    verdict = judge(run, ()).verdict.model_copy(update={"status": status})
    return run.model_copy(update={"verdict": verdict})


def watched(folder: Path, url: str | None) -> Watch:
    diary = Diary(folder, "lab", "production")
    return Watch(diary, diary.read(), "lab", "production", url, trust_env=False)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(notify, "PAUSE_SECONDS", 0.0)


def test_it_is_told_of_changes_and_only_of_those(tmp_path: Path) -> None:
    seen = [Status.PASS, Status.PASS, Status.FAIL, Status.FAIL, Status.INCONCLUSIVE, Status.PASS]
    with webhook() as hook:
        for status in seen:
            watched(tmp_path, hook.url).concluded(record(status), 0)
    changes = [(told["previous"], told["outcome"]) for told in hook.told]
    assert changes == [("pass", "fail"), ("fail", "inconclusive"), ("inconclusive", "pass")]
    assert Diary(tmp_path, "lab", "production").read().turns == len(seen)


@pytest.mark.parametrize(
    ("status", "news"), [(Status.PASS, 0), (Status.FAIL, 1), (Status.INCONCLUSIVE, 1)]
)
def test_a_first_run_is_news_when_it_does_not_pass(
    status: Status, news: int, tmp_path: Path
) -> None:
    with webhook() as hook:
        watched(tmp_path, hook.url).concluded(record(status), 0)
    assert len(hook.told) == news


def test_what_is_posted_keeps_to_its_schema_and_holds_no_evidence(tmp_path: Path) -> None:
    with webhook() as hook:
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
    (told,) = hook.told
    jsonschema.validate(told, Notice.model_json_schema(mode="serialization"))
    assert told["findings"][0].keys() == {"rule", "severity", "title"}
    assert told["exit_code"] == 1
    assert told["text"].startswith("kvcanary production on lab: fail.")


def failing(*severities: Severity) -> RunRecord:
    rules = {Severity.LEAK: "isolation/foreign-text", Severity.CAPACITY: "capacity/danger-window"}
    found = tuple(finding(rule=rules[s], severity=s) for s in severities)
    run = record(Status.FAIL)
    return run.model_copy(update={"findings": found})


def test_a_leak_is_news_where_a_run_failed_already(tmp_path: Path) -> None:
    with webhook() as hook:
        for severities in ([Severity.CAPACITY], [Severity.CAPACITY, Severity.LEAK]):
            for _ in range(2):
                watched(tmp_path, hook.url).concluded(failing(*severities), 1)
    assert [told["findings_in_all"] for told in hook.told] == [1, 2]
    assert hook.told[1]["findings"][0]["severity"] == "leak"


def test_a_run_that_tells_nobody_leaves_the_news(tmp_path: Path) -> None:
    watched(tmp_path, None).concluded(record(Status.FAIL), 1)
    with webhook() as hook:
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
    assert [told["outcome"] for told in hook.told] == ["fail"]


def test_what_was_not_delivered_is_posted_first(tmp_path: Path) -> None:
    with webhook(404) as hook:
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
        hook.statuses[:], hook.bodies[:] = [200], []
        watched(tmp_path, hook.url).concluded(record(Status.PASS), 0)
    assert [told["outcome"] for told in hook.told] == ["fail", "pass"]


def test_a_run_that_did_not_come_to_its_end_has_had_no_turn(tmp_path: Path) -> None:
    stopped = record(Status.INCONCLUSIVE).model_copy(update={"stopped": "no room"})
    watched(tmp_path, None).concluded(stopped, 3)
    assert Diary(tmp_path, "lab", "production").read().turns == 0


def test_hostile_titles_are_no_mentions_links_or_lines(tmp_path: Path) -> None:
    title = "<!channel> <http://x|y> \u202edrow\nagain\x1b[31m"
    run = record(Status.FAIL)
    run = run.model_copy(update={"findings": (finding(title=title),)})
    with webhook() as hook:
        watched(tmp_path, hook.url).concluded(run, 1)
    (told,) = hook.told
    shown = told["text"] + told["headline"] + told["findings"][0]["title"]
    assert shown.isprintable()
    assert not set("<>") & set(shown)


def test_a_run_that_could_not_be_is_news_and_no_turn(tmp_path: Path) -> None:
    with webhook() as hook:
        watched(tmp_path, hook.url).could_not_run("nobody listens", ExitCode.COULD_NOT_RUN)
        watched(tmp_path, hook.url).could_not_run("nobody listens", ExitCode.COULD_NOT_RUN)
    (told,) = hook.told
    assert (told["outcome"], told["headline"], told["run"]) == (
        "could not run",
        "nobody listens",
        None,
    )
    assert Diary(tmp_path, "lab", "production").read() == Memory(told=Outcome.COULD_NOT_RUN)


def test_a_busy_receiver_is_asked_again() -> None:
    with webhook(503, 429, 200) as hook:
        assert notify.post(hook.url, a_notice()) is None
    assert len(hook.bodies) == 3


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_was_not_delivered_is_said_and_told_by_the_next_run(
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with webhook(status) as hook:
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
        said = capsys.readouterr().err
        assert f"HTTP {status}" in said
        hook.statuses[:], hook.bodies[:] = [200], []
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
        watched(tmp_path, hook.url).concluded(record(Status.FAIL), 1)
    assert len(hook.told) == 1
    assert SECRET not in said + caplog.text


def test_nobody_there_shows_no_secret(unused_port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    failure = notify.post(f"http://127.0.0.1:{unused_port}/{SECRET}", a_notice())
    assert failure
    assert SECRET not in failure + caplog.text


def a_notice() -> Notice:
    return notify.notice(Outcome.FAIL, None, 1, None, target="lab", suite="check", why="w", now=0.0)


@pytest.mark.parametrize(
    "url", ["", "ftp://host/x", "host/x", "http://", "http://[::1", "https:///x"]
)
def test_a_url_that_cannot_be_posted_to_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as told:
        notify.checked_url(url + SECRET if url.endswith("/x") else url)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("text", [b"", b"{", b'{"schema_version": 1, "turns": "x"}', b"\x00" * 99])
def test_a_damaged_memory_is_a_first_run(text: bytes, tmp_path: Path) -> None:
    diary = Diary(tmp_path, "lab", "production")
    diary.write(Memory(turns=3, told=Outcome.FAIL))
    assert diary.path.stat().st_mode & 0o777 == 0o600
    assert diary.read().turns == 3
    diary.path.write_bytes(text)
    assert diary.read() == Memory()


def test_a_memory_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memory").write_text("in the way")
    watched(tmp_path, None).concluded(record(Status.PASS), 0)
    assert "What the next run should know was not kept" in capsys.readouterr().err


def test_kinds_of_runs_have_memories_of_their_own(tmp_path: Path) -> None:
    Diary(tmp_path, "lab", "production").write(Memory(turns=1))
    for kind in (("lab", "check"), ("other", "production"), ("lab", "production", "m")):
        assert Diary(tmp_path, *kind).read() == Memory()


def test_the_command_tells_that_it_could_not_run(tmp_path: Path, unused_port: int) -> None:
    nowhere = f"http://127.0.0.1:{unused_port}/v1"
    with webhook() as hook:
        ended = kvcanary(
            tmp_path,
            *("check", nowhere, "--model", "m", "-q"),
            extra={"KVCANARY_NOTIFY_URL": hook.url},
        )
    assert ended.code == ExitCode.COULD_NOT_RUN
    assert [told["outcome"] for told in hook.told] == ["could not run"]
    assert SECRET not in ended.said
