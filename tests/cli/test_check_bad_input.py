"""``kvcanary check`` against what is no sound deployment: a message and 2 or 3, never 0, never a traceback."""

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest
import trustme

from kvcanary.record.journal import load
from tests.cli.command import (
    COMMAND,
    GUARD_SECONDS,
    Ended,
    check_against,
    counted,
    environment,
    front_door,
    kvcanary,
    only_record,
    records,
    tell,
)
from tests.probing.rogue_server import Call, Handler, delta, rogue_server, sse, usage

ARGUMENTS = ("--model", "tiny", "--context", "8192", "--deadline", "20")
ANSWERS = count()
HTML = b"<!DOCTYPE html><html><body>Welcome</body></html>"


def ends_well(ended: Ended, folder: Path, code: int) -> None:
    """A message, the code, and a record that can be shown again without making it better."""
    assert "Traceback" not in ended.said
    assert ended.code == code, ended.said
    (path,) = records(folder)
    record = load(path)
    assert record.verdict is None or record.verdict.exit_code == code
    assert (path.suffix == ".partial") is (record.verdict is None)
    assert path.stat().st_mode & 0o777 == 0o600
    shown = kvcanary(folder, "report", str(path))
    assert "Traceback" not in shown.said
    assert shown.code == (3 if record.verdict is None else code)
    assert record.stopped
    assert " ".join(record.stopped.split()) in shown.said


# nothing there


def test_an_unknown_host(tmp_path: Path) -> None:
    ended = kvcanary(tmp_path, "check", "http://nohost.invalid/v1", *ARGUMENTS)
    ends_well(ended, tmp_path, 2)
    assert "GET http://nohost.invalid/v1/models: the host name is not known here" in ended.said
    assert "host name is not known here. Check the URL's host" in ended.said


def test_a_refused_connection(tmp_path: Path, unused_port: int) -> None:
    ended = kvcanary(tmp_path, "check", f"http://127.0.0.1:{unused_port}/v1", *ARGUMENTS)
    ends_well(ended, tmp_path, 2)
    assert "the connection was refused. Check that the server runs" in ended.said


@pytest.mark.parametrize("url", ["http://nohost.invalid/v1", "http://127.0.0.1:{port}/v1"])
def test_without_a_model_the_reason_is_the_connection_not_the_model(
    url: str, tmp_path: Path, unused_port: int
) -> None:
    ended = kvcanary(tmp_path, "check", url.format(port=unused_port))
    assert ended.code == 2
    assert "Traceback" not in ended.said
    assert "host name is not known" in ended.said or "connection was refused" in ended.said
    assert "--model" not in ended.said


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    async def handler(call: Call) -> None:
        await call.answer(404)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def exchange() -> Ended:
        async with rogue_server(handler, tls=context) as server:
            url = server.base_url
            return await asyncio.to_thread(kvcanary, tmp_path, "check", url, *ARGUMENTS)

    ended = asyncio.run(exchange())
    ends_well(ended, tmp_path, 2)
    assert "TLS failed. Check the server's certificate" in ended.said


# something there, and no deployment


def saying(status: int, body: bytes, content_type: str = "application/json") -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, body, content_type)

    return handler


async def redirecting(call: Call) -> None:
    await call.answer(308, extra="Location: http://elsewhere.invalid/v1/chat/completions\r\n")


SETUP = {
    "401": (saying(401, b'{"error":{"message":"bad key BODYTEXT"}}'), "Check the API key"),
    "model": (
        front_door(
            saying(404, b'{"error":{"message":"The model `tiny` does not exist BODYTEXT"}}')
        ),
        "'tiny': the server knows no such model (HTTP 404)",
    ),
    "html": (saying(200, HTML, "text/html"), "a web page came back"),
    "html 404": (saying(404, HTML, "text/html"), "a web page came back (HTTP 404)"),
    "redirect": (redirecting, "redirects are not followed"),
    "binary": (
        saying(200, b"\x00\xff" * 5_000_000, "application/octet-stream"),
        "neither a stream nor JSON",
    ),
    "binary as JSON": (saying(200, b"{\x00\xff" * 1_000_000), "is not JSON"),
}


@pytest.mark.parametrize(("handler", "words"), SETUP.values(), ids=SETUP)
def test_what_is_no_endpoint_is_said_to_be_none(
    handler: Handler, words: str, tmp_path: Path
) -> None:
    ended = check_against(handler, tmp_path, *ARGUMENTS)
    ends_well(ended, tmp_path, 2)
    assert words in ended.said
    assert "BODYTEXT" not in ended.said
    for path in tmp_path.rglob("*.jsonl*"):
        assert "BODYTEXT" not in path.read_text()


# an endpoint that does not serve


async def cut(call: Call) -> None:
    await call.start_chunked()
    await call.chunk(sse(delta("The ledger")))
    call.hang_up(reset=True)


async def no_usage(call: Call) -> None:
    await tell(call, delta("yes", finish="stop"), "[DONE]")


async def endless(call: Call) -> None:
    await call.start_stream()
    while not call.writer.is_closing():
        await call.say(sse(delta("on and on ") | {"padding": "x" * 10_000}))


async def silent(call: Call) -> None:
    await call.disconnected()


async def forgetful(call: Call) -> None:
    named = delta("I would rather not.", finish="stop") | {"id": f"chatcmpl-{next(ANSWERS)}"}
    await tell(call, named, usage(counted(call), 5, 0), "[DONE]")


async def truncating(call: Call) -> None:
    """A gateway that silently shortens prompts to 500 tokens."""
    prompt = min(500, counted(call))
    await tell(call, delta("no", finish="stop"), usage(prompt, 5, 0), "[DONE]")


async def lying(call: Call) -> None:
    await tell(call, delta("x", finish="stop"), usage(10**15, 10**15, 10**15), "[DONE]")


UNMEASURED: dict[str, tuple[Callable[[Call], Awaitable[None]], str]] = {
    "429": (saying(429, b'{"error":"slow down"}'), "rate limited, HTTP 429"),
    "503": (saying(503, b"no healthy upstream", "text/plain"), "overloaded, HTTP 503"),
    "500": (saying(500, b'{"error":"oops"}'), "server error, HTTP 500"),
    "cut": (cut, "(truncated: cut, HTTP 200)"),
    "no usage": (no_usage, "reports no usage (prompt_tokens)"),
    "empty": (saying(200, b""), "empty body, HTTP 200"),
    "endless": (endless, "too large, HTTP 200"),
    "10 MB": (saying(200, b"{" + b"\x00" * 10_000_000), "too large, HTTP 200"),
    "no choices": (saying(200, b"{}"), "no choices, HTTP 200"),
}


@pytest.mark.parametrize(("handler", "words"), UNMEASURED.values(), ids=UNMEASURED)
def test_what_cannot_be_measured_is_inconclusive(
    handler: Handler, words: str, tmp_path: Path
) -> None:
    ended = check_against(front_door(handler), tmp_path, *ARGUMENTS)
    ends_well(ended, tmp_path, 3)
    assert words in ended.said
    assert "INCONCLUSIVE" in ended.out


@pytest.mark.parametrize("handler", [truncating, lying])
def test_usage_that_cannot_be_true_is_a_violation_and_never_a_pass(
    handler: Handler, tmp_path: Path
) -> None:
    ended = check_against(front_door(handler), tmp_path, *ARGUMENTS)
    assert "Traceback" not in ended.said
    assert ended.code == 1
    assert "[accounting/usage]" in ended.said
    assert kvcanary(tmp_path, "report", str(records(tmp_path)[0])).code == 1


@pytest.mark.parametrize("everything", [True, False], ids=["everything", "completions only"])
def test_a_server_that_never_answers_ends_by_the_deadline(everything: bool, tmp_path: Path) -> None:
    handler = silent if everything else front_door(silent)
    ended = check_against(handler, tmp_path, *ARGUMENTS[:-1], "1")
    ends_well(ended, tmp_path, 3)
    assert "(hung: deadline)" in ended.said
    assert "allow more with --deadline" in ended.said
    (sent,) = only_record(tmp_path).exchanges
    assert sent.outcome == "hung"


def test_metadata_waits_no_longer_than_the_deadline(tmp_path: Path) -> None:
    """Four documents at five seconds each would take twenty."""
    asked: list[str] = []

    async def handler(call: Call) -> None:
        asked.append(call.path)
        await call.disconnected()

    async def exchange() -> None:
        from kvcanary.deployment.discovery import discover
        from kvcanary.probing.client import Client
        from kvcanary.probing.endpoint import Endpoint

        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "m")) as client,
        ):
            async with asyncio.timeout(4):
                await discover(client, 8192, deadline_seconds=0.1)

    asyncio.run(exchange())
    # on a busy machine a request may not even arrive within its deadline
    assert asked
    assert set(asked) <= {"/v1/models", "/workers", "/server_info", "/get_server_info"}


def test_a_context_too_small_for_a_prompt(tmp_path: Path) -> None:
    ended = check_against(front_door(forgetful), tmp_path, "--context", "100")
    ends_well(ended, tmp_path, 3)
    assert "The context of 100 tokens is too small" in ended.said


def test_an_unknown_context_is_no_pass(tmp_path: Path) -> None:
    ended = check_against(front_door(forgetful), tmp_path, "--tokens", "200000")
    assert "Traceback" not in ended.said
    assert ended.code == 3
    record = only_record(tmp_path)
    assert record.facts
    assert record.facts.context_source != "--context"


def test_a_model_that_repeats_nothing_is_no_pass(tmp_path: Path) -> None:
    ended = check_against(front_door(forgetful), tmp_path, *ARGUMENTS)
    assert "Traceback" not in ended.said
    assert ended.code == 3
    record = only_record(tmp_path)
    assert record.verdict is not None
    claims = {claim.name.value: claim for claim in record.verdict.claims}
    assert claims["ownership"].status == claims["isolation"].status == "inconclusive"
    assert "repeated none of its own labels" in claims["ownership"].text
    assert "positive control failed" in claims["isolation"].text
    assert kvcanary(tmp_path, "report", str(records(tmp_path)[0])).code == 3


# arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check",), "Missing argument"),
        (("check", "lab:nope"), "there are: healthy, glm-5.3, glm-5.3-patched"),
        (("check", "lab:"), "there are: healthy"),
        (("check", "lab:healthy?contxt=5"), "a lab takes context, seed, front_door_only"),
        (("check", "lab:healthy?context=many"), "'many' is not a valid integer"),
        (("check", "lab:healthy?context=1"), "context"),
        (("check", "lab:healthy", "--context", "0"), "0 is not in the range"),
        (("check", "lab:healthy", "--context", "-5"), "not in the range"),
        (("check", "lab:healthy", "--context", "1" + "0" * 30), "not in the range"),
        (("check", "lab:healthy", "--deadline", "nan"), "deadline"),
        (("check", "lab:healthy", "--deadline", "inf"), "deadline"),
        (("check", "lab:healthy", "--minutes", "nan"), "minutes"),
        (("check", "lab:healthy", "--minutes", "inf"), "minutes"),
        (("check", "lab:healthy", "--concurrency", "0"), "not in the range"),
        (("check", "lab:healthy", "--report", "junit"), "asked for as junit=FILE"),
        (("check", "lab:healthy", "--report", "jnit=x"), "did you mean `junit`?"),
        (("check", "lab:healthy", "--report", "junit=/nowhere/x.xml"), "is its folder there?"),
        (("check", "lab:healthy", "--report", "junit=/tmp"), "cannot be a file"),
        (("check", "lab:healthy", "--record", "/dev/full"), "not a file"),
        (("check", "lab:healthy", "--record", "/dev/null/x"), "cannot be written"),
        (("check", "lab:healthy?context=4096", "--contact", "a\nb"), "--contact takes"),
        (("check", "ftp://example.com"), "http(s)://HOST[:PORT]/v1"),
        (("check", "not a url"), "http(s)://HOST[:PORT]/v1"),
        (("check", "http://user:hunter2@example.com/v1"), "user name or a password"),
        (("check", "lab:healthy", "--ca-file", "/nowhere"), "does not exist"),
        (("report", "/nowhere"), "No such file"),
        (("report", "/dev"), "cannot be read"),
        (("replay", "/nowhere", "F1"), "No such file"),
        (("chekc",), "No such command"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_bad_arguments_are_exit_2_with_a_reason(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    ended = kvcanary(tmp_path, *arguments)
    assert "Traceback" not in ended.said
    assert ended.code == 2, ended.said
    assert words in ended.said
    assert "hunter2" not in ended.said
    assert ended.out == ""


def test_a_full_disk_behind_standard_output_is_no_fault_of_ours(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, "advisories"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(tmp_path),
            check=False,
            timeout=GUARD_SECONDS,
        )
    assert ended.returncode == 2
    assert ended.stderr == (
        b"Error: what there is to say could not be written: No space left on device.\n"
    )


def test_every_command_has_help(tmp_path: Path) -> None:
    for command in (
        (),
        ("check",),
        ("lab",),
        ("lab", "list"),
        ("lab", "serve"),
        ("replay",),
        ("report",),
    ):
        ended = kvcanary(tmp_path, *command, "--help")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("Usage: ")
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "site.key").exists()
