"""kvcanary never becomes the leak: secrets of others and of its user reach no output and no file.

A server plants somebody's text and keys in every place that a server can write to; the real command runs
against it, and everything it printed and wrote is searched.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import (
    Ended,
    check_against,
    counted,
    environment,
    kvcanary,
    records,
    tell,
)
from tests.probing.rogue_server import Call, Handler, delta, usage

CUSTOMER = "Mrs-Hildegard-Zwiebelfisch-IBAN-DE02120300000000202051"
SERVER_KEY = "sk-server-7f3e9a-do-not-print"
USER_KEY = "sk-user-5b1c22-do-not-print"
USER_HEADER_VALUE = CUSTOMER.lower()
SECRETS = (CUSTOMER, CUSTOMER.lower(), CUSTOMER[:20], SERVER_KEY, USER_KEY)


def planted(call: Call) -> Handler | None:
    """What every metadata endpoint says, with a secret in each field that is free text."""
    port = call.writer.get_extra_info("sockname")[1]
    worker = f"http://127.0.0.1:{port}"
    documents: dict[str, object] = {
        "/v1/models": {
            "object": "list",
            "data": [
                {"id": "tiny", "object": "model", "owned_by": CUSTOMER, "max_model_len": 4096},
                {"id": CUSTOMER, "max_model_len": CUSTOMER},
            ],
            "note": SERVER_KEY,
        },
        "/workers": {
            "workers": [
                {"worker_type": "prefill", "url": worker, "model_id": CUSTOMER},
                {"worker_type": "decode", "url": f"http://{CUSTOMER}:{SERVER_KEY}@127.0.0.1:1"},
                {"worker_type": CUSTOMER, "url": CUSTOMER},
            ]
        },
        "/server_info": {
            "api_key": SERVER_KEY,
            "admin_api_key": SERVER_KEY,
            "version": f"0.5.23-{CUSTOMER}",
            "max_total_num_tokens": 8192,
            "max_req_input_len": 8186,
            "context_length": 4096,
            "page_size": 16,
            "disaggregation_mode": CUSTOMER,
            "served_model_name": CUSTOMER,
        },
    }
    document = documents.get(call.path.partition("?")[0])
    if document is None:
        return None
    body = json.dumps(document).encode()

    async def answer(one: Call) -> None:
        await one.answer(
            200, body, extra=f"X-Note: {SERVER_KEY}\r\nSet-Cookie: id={SERVER_KEY}\r\n"
        )

    return answer


def server(completions: Handler) -> Handler:
    async def handler(call: Call) -> None:
        metadata = planted(call)
        if call.method == "POST":
            await completions(call)
        elif metadata:
            await metadata(call)
        elif call.path == "/metrics":
            text = f'# HELP x {CUSTOMER}\nsglang:prompt_tokens_total{{m="{CUSTOMER}"}} 1\n'
            await call.answer(200, text.encode(), "text/plain")
        else:
            await call.answer(404, json.dumps({"detail": CUSTOMER}).encode())

    return handler


def label_asked_for(call: Call) -> str:
    """The label in the prompt's last sentence but one, which an honest model would repeat."""
    words = call.fields["messages"][0]["content"].split()
    return str(next(word for word in reversed(words) if word.startswith("KVC-")))


async def says_somebody_elses_text(call: Call) -> None:
    text = (
        f"{CUSTOMER} {label_asked_for(call)} \x1b[31m{CUSTOMER}\x1b[0m <script>{CUSTOMER}</script>"
    )
    first = {**delta(text), "id": CUSTOMER, "model": CUSTOMER, "system_fingerprint": CUSTOMER}
    thought = delta(reasoning_content=f"I remember {CUSTOMER}")
    await tell(call, first, thought, delta(finish="stop"), usage(counted(call)), "[DONE]")


async def errors_with_somebody_elses_text(call: Call) -> None:
    body = {"error": {"message": f"failed for {CUSTOMER} {SERVER_KEY}", "type": CUSTOMER}}
    await call.answer(500, json.dumps(body).encode())


async def refuses_with_somebody_elses_text(call: Call) -> None:
    message = f"{CUSTOMER}: The input (9000 tokens) is longer than the model's context length (10 tokens)."
    body = {"object": "error", "message": message, "type": CUSTOMER, "code": 400}
    await call.answer(400, json.dumps(body).encode())


async def breaks_off_in_the_stream(call: Call) -> None:
    await tell(call, delta(CUSTOMER), {"error": {"message": CUSTOMER, "code": 500}})


async def redirects_to_somebody(call: Call) -> None:
    await call.answer(302, b"", extra=f"Location: http://{CUSTOMER}.invalid/{SERVER_KEY}\r\n")


async def is_a_web_page(call: Call) -> None:
    await call.answer(200, f"<html><title>{CUSTOMER}</title></html>".encode(), "text/html")


def everything_written(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")


def assert_nothing_leaked(folder: Path, *ended: Ended) -> None:
    outputs = [text for one in ended for text in (one.out, one.err)]
    places = [("output", text) for text in outputs] + list(everything_written(folder))
    for place, text in places:
        for secret in SECRETS:
            assert secret not in text, f"{secret[:8]}... in {place}"


@pytest.mark.parametrize(
    "completions",
    [
        says_somebody_elses_text,
        errors_with_somebody_elses_text,
        refuses_with_somebody_elses_text,
        breaks_off_in_the_stream,
        redirects_to_somebody,
        is_a_web_page,
    ],
    ids=lambda handler: handler.__name__,
)
def test_nothing_a_server_says_is_printed_or_written(completions: Handler, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    checked = check_against(
        server(completions),
        tmp_path,
        "--model",
        "tiny",
        "--context",
        "4096",
        "--deadline",
        "5",
        "--report",
        f"junit={reports / 'junit.xml'}",
        "--report",
        f"json={reports / 'record.json'}",
        extra={"KVCANARY_API_KEY": USER_KEY, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    shown = [kvcanary(tmp_path, "report", str(path)) for path in records(tmp_path)]
    as_json = [kvcanary(tmp_path, "report", str(path), "-o", "json") for path in records(tmp_path)]
    assert shown, "a record is left whatever happens"
    assert checked.code in (1, 2, 3)
    assert "Traceback" not in checked.err
    assert_nothing_leaked(tmp_path, checked, *shown, *as_json)


def test_the_server_was_heard(tmp_path: Path) -> None:
    """The guard of the tests above: the planted answers are really read (their labels come back)."""
    checked = check_against(
        server(says_somebody_elses_text), tmp_path, "--model", "tiny", "--context", "4096"
    )
    (path,) = records(tmp_path)
    assert '"kept"' in path.read_text()
    assert checked.code in (1, 3)


def test_a_failing_test_with_locals_shows_no_secret(tmp_path: Path) -> None:
    """``pytest --showlocals`` prints the repr of everything that is held while a run fails."""
    test = tmp_path / "test_fails.py"
    test.write_text(
        "import asyncio\n"
        "from kvcanary.probing.client import Client\n"
        "from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey\n"
        "from kvcanary.canary.sitekey import SiteKey\n"
        f"KEY = bytes.fromhex('{USER_KEY.encode().hex()}').decode()\n"
        "def make():\n"
        "    return Endpoint('http://127.0.0.1:9/v1', 'm', api_key=SecretKey(KEY))\n"
        "def test_it():\n"
        "    endpoint = make()\n"
        "    site_key = SiteKey(bytes(range(32)))\n"
        "    client = Client(endpoint)\n"
        "    request = Request('a', PlainText('x'), 1, 'u')\n"
        "    reply = asyncio.run(client.send(request, deadline_seconds=2))\n"
        "    assert reply is None\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--showlocals", "-p", "no:cacheprovider", str(test)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
        timeout=60,
        check=False,
    )
    assert "1 failed" in ended.stdout
    assert "SecretKey(***)" in ended.stdout
    assert USER_KEY not in ended.stdout + ended.stderr
    assert bytes(range(32)).hex() not in ended.stdout
    assert "x01\\x02\\x03\\x04" not in ended.stdout
