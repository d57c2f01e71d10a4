"""Deployment files on the command line: made by ``init``, taken by ``check``, ``plan`` and ``replay``."""

import asyncio
import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvcanary.deployment.file import load_deployment
from kvcanary.deployment.template import Found, deployment_text, scalar
from kvcanary.probing.endpoint import UNNAMED, Endpoint
from kvcanary.probing.yaml_file import load_yaml
from kvcanary.record.journal import load
from tests.cli.command import COMMAND, Ended, environment, kvcanary, only_record, records
from tests.engines.captures import answer
from tests.instrument.served_lab import served
from tests.probing.rogue_server import Call, Handler, rogue_server, run

SECRET = "sk-SECRET-0123456789abcdef"


def command_against(
    handler: Handler,
    folder: Path,
    *arguments: str,
    extra: dict[str, str] | None = None,
    file: tuple[Path, str] | None = None,
) -> tuple[Ended, list[Call]]:
    """A command whose ``URL`` is a server that answers with ``handler``, and what that was asked.

    ``file``: written before; ``URL`` in it is that server, too.
    """

    async def exchange() -> tuple[Ended, list[Call]]:
        async with rogue_server(handler) as server:
            if file:
                file[0].write_text(file[1].replace("URL", server.base_url))
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *(argument.replace("URL", server.base_url) for argument in arguments),
                env=environment(folder, extra),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode is not None
            return Ended(process.returncode, out.decode(), err.decode()), server.calls

    return run(exchange())


# -- init ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [False, True])
def test_what_init_writes_is_taken_as_it_is(tmp_path: Path, *, hidden: bool) -> None:
    path = tmp_path / "kvcanary.yaml"
    front_door_only = ("--front-door-only",) if hidden else ()
    with served(tmp_path, "healthy", "--context", "4096", *front_door_only) as url:
        made = kvcanary(tmp_path, "init", url, "-o", str(path))
        assert (made.code, made.err) == (0, "")
        checked = kvcanary(tmp_path, "check", str(path), "--suite", "smoke", "-q")
        planned = kvcanary(tmp_path, "plan", str(path), "--offline", "--suite", "smoke")
    assert checked.code == 0, checked.said
    record = only_record(tmp_path)
    assert record.info.target == str(path)
    assert record.facts
    assert record.facts.context_tokens == 4_096
    assert record.facts.context_source == "the deployment file"
    assert bool(record.facts.workers) is not hidden
    assert planned.code == 0
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=file:///")
    assert text.splitlines()[0].endswith("/reports/schemas/deployment.schema.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ("# No worker could be asked" in text) is hidden


def test_a_file_that_is_there_stays_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine")
    with served(tmp_path, "healthy", "--context", "4096") as url:
        kept = kvcanary(tmp_path, "init", url, "-o", str(path))
        assert (kept.code, path.read_text()) == (2, "mine")
        assert "is there already. Name another with -o, or replace it with --force." in kept.said
        forced = kvcanary(tmp_path, "init", url, "-o", str(path), "--force")
    assert forced.code == 0
    assert load_deployment(path).front_door.url == url


def test_no_key_is_written(tmp_path: Path) -> None:
    async def guarded(call: Call) -> None:
        if call.headers.get("authorization") != f"Bearer {SECRET}":
            await call.answer(401, b"{}")
        elif call.path == "/v1/models":
            await call.answer(200, b'{"data":[{"id":"m"},{"id":"${HOME}: # \\"x"}]}')
        else:
            await call.answer(404, b"{}")

    path = tmp_path / "kvcanary.yaml"
    made, _ = command_against(guarded, tmp_path, "init", "URL", "-o", str(path), extra={"KEY": "x"})
    assert made.code == 0
    assert "The front door asks for a key: set KVCANARY_API_KEY" in path.read_text()
    given = {"MY_KEY": SECRET}
    arguments = ("init", "URL", "-o", str(path), "--force", "--api-key-env", "MY_KEY")
    made, _ = command_against(guarded, tmp_path, *arguments, extra=given)
    assert made.code == 0
    assert "first: say in it which model to test" in made.out
    text = path.read_text()
    assert SECRET not in text + made.out + made.err
    assert "\n  key: ${MY_KEY}\n" in text
    assert "# model: NAME  # has to be chosen; served: " in text
    lone = command_against(guarded, tmp_path, "check", str(path), extra=given)[0]
    assert lone.code == 2


ASKABLE = {"url": "http://127.0.0.1:9", "worker_type": "decode"}
LISTS: list[tuple[str, object, int]] = [
    ("/health", answer("dynamo-health.json"), 0),
    (
        "/workers",
        {"workers": [{"url": "file:///etc/passwd", "worker_type": "prefill"}, ASKABLE]},
        1,
    ),
    ("/workers", {"workers": [{"worker_type": "decode"}, "x", None]}, 0),
    ("/workers", {"workers": [{"url": "http://[::1]:9", "worker_type": "prefill"}, ASKABLE]}, 2),
    ("/workers", {"workers": [ASKABLE] * 3}, 1),
    ("/workers", {"workers": [ASKABLE, {**ASKABLE, "worker_type": "prefill"}]}, 1),
]


@pytest.mark.parametrize(("path", "listed", "asked"), LISTS)
def test_workers_that_cannot_be_asked_are_said_and_keep_the_file_valid(
    path: str, listed: object, asked: int, tmp_path: Path
) -> None:
    async def router(call: Call) -> None:
        paths = {path: listed, "/v1/models": {"data": [{"id": "m", "max_model_len": 9}]}}
        found = paths.get(call.path)
        await call.answer(200 if found else 404, json.dumps(found).encode())

    written = tmp_path / "kvcanary.yaml"
    made, _ = command_against(router, tmp_path, "init", "URL", "-o", str(written))
    assert made.code == 0, made.said
    named = load_deployment(written).workers
    assert len((*named.prefill, *named.decode, *named.unified)) == asked
    text = written.read_text()
    assert "unknown-" not in text
    if "file:" in str(listed):
        assert "# 1 prefill worker cannot be asked, since no URL is known: add it below." in text


def test_init_of_what_serves_no_model_says_so(tmp_path: Path) -> None:
    async def page(call: Call) -> None:
        await call.answer(200, b"<html>Welcome</html>", "text/html")

    path = tmp_path / "kvcanary.yaml"
    made, _ = command_against(page, tmp_path, "init", "URL", "-o", str(path))
    assert made.code == 0
    for text in (made.said, path.read_text()):
        assert "/models: a web page. Is this the base URL of an OpenAI-compatible server" in text


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("lab:healthy", "takes the URL of a front door"),
        ("http://127.0.0.1:{port}/v1", "the connection was refused"),
        ("http://nobody.invalid/v1", "the host name is not known here"),
    ],
)
def test_init_of_nothing(target: str, said: str, tmp_path: Path, unused_port: int) -> None:
    path = tmp_path / "kvcanary.yaml"
    ended = kvcanary(tmp_path, "init", target.format(port=unused_port), "-o", str(path))
    assert ended.code == 2
    assert said in ended.said
    assert not path.exists()


@pytest.mark.parametrize(
    "model",
    [
        "glm-5.3",
        "org/name",
        "5.3",
        "true",
        "a: b",
        "# x",
        "${HOME}",
        "$$",
        "'",
        '"',
        "schnee☃",
        "null",
        "-",
    ],
)
def test_a_model_of_any_name_is_read_back(model: str, tmp_path: Path) -> None:
    endpoint = Endpoint("http://h:1/v1", model)
    found = Found(endpoint, "file:///s", (model,), None, "KVCANARY_API_KEY", needs_key=False)
    path = tmp_path / "kvcanary.yaml"
    path.write_text(deployment_text(found), encoding="utf-8")
    assert load_deployment(path).front_door.model == model
    assert "\n" not in scalar(model)


def test_options_of_init_stand_in_its_file(tmp_path: Path) -> None:
    from kvcanary.deployment.file import DeploymentFile
    from kvcanary.probing.endpoint import Api, SecretKey

    ca_file = tmp_path / "ca.pem"
    ca_file.write_text("PEM")
    endpoint = Endpoint(
        "http://h:1/v1",
        UNNAMED,
        Api.COMPLETIONS,
        stream=False,
        api_key=SecretKey(SECRET),
        ca_file=str(ca_file),
        trust_env=True,
    )
    found = Found(
        endpoint, "file:///s", ("a", "b"), None, "MY_KEY", needs_key=True, trust_discovered=True
    )
    path = tmp_path / "kvcanary.yaml"
    path.write_text(deployment_text(found))
    target = load_yaml(path, DeploymentFile, {"MY_KEY": SECRET}.get).target("x")
    assert target.endpoint == endpoint
    assert target.trust_discovered


def test_every_comment_of_a_new_file_is_a_key_that_may_stand_there(tmp_path: Path) -> None:
    """Take the # of all keys away: the file is still one."""
    found = Found(Endpoint("http://h:1/v1", "m"), "file:///s", ("m",), None, "K", needs_key=False)
    text = deployment_text(found)
    uncommented = re.sub(r"^( *)# ( *(- )?[a-z_]+:( |$))", r"\1\2", text, flags=re.MULTILINE)
    assert uncommented.count("# ") < text.count("# ")
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text("PEM")
    path = tmp_path / "kvcanary.yaml"
    path.write_text(uncommented)
    variables = {
        name: name
        for name in ("K", "TENANT_A_KEY", "TENANT_A_SALT", "TENANT_B_KEY", "TENANT_B_SALT", "NAME")
    }
    from kvcanary.deployment.file import DeploymentFile

    whole = load_yaml(path, DeploymentFile, variables.get)
    assert len(whole.tenants) == 2
    assert whole.promises.output
    assert whole.workers.prefill
    assert whole.tls.certificate_file
    assert whole.prometheus
    assert whole.waivers


# -- check, plan, replay ---------------------------------------------------------------------------


MISSPELT = "front_door:\n  urll: URL\n"


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        *(
            (command, MISSPELT, ":2:3: front_door.urll: there is no such key")
            for command in ("plan", "capacity")
        ),
        ("check", MISSPELT, ":2:3: front_door.urll: there is no such key; did you mean `url`?"),
        (
            "check",
            "front_door:\n  url: URL\n  key: ${NOT_SET}\n",
            ":3:8: the environment variable NOT_SET is not set",
        ),
        ("check", "front_door:\n  url: URL\ntls: {ca_file: no.pem}\n", ":3:7: tls.ca_file: "),
        (
            "check",
            "front_door:\n  url: URL\nwaivers: [{rule: capacity/pol, reason: abc, until: 2030-01-01}]\n",
            "waivers: There is no `capacity/pol`; did you mean `capacity/po",
        ),
    ],
)
def test_a_mistake_ends_it_before_anything_is_sent(
    command: str, text: str, said: str, tmp_path: Path
) -> None:
    async def nobody(call: Call) -> None:
        await call.answer(500)

    path = tmp_path / "kvcanary.yaml"
    ended, calls = command_against(nobody, tmp_path, command, str(path), file=(path, text))
    assert ended.code == 2
    assert said in ended.said
    assert "Traceback" not in ended.err
    assert calls == []
    assert records(tmp_path) == []


@pytest.mark.parametrize("name", ["missing.yaml", "folder", "localhost:8000/v1"])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = name if ":" in name else str(tmp_path / name)
    ended = kvcanary(tmp_path, "check", target)
    assert ended.code == 2
    assert "cannot be read" in ended.err or "TARGET is no http(s) URL" in ended.err


@contextmanager
def _file(folder: Path, url: str) -> Iterator[Path]:
    path = folder / "kvcanary.yaml"
    path.write_text(
        f"front_door:\n  url: {url}\n  model: other\n  api: completions\n"
        "promises: {context: 9999}\n"
        "tenants:\n- {key: '${A}', cache_salt: salt-a}\n- {key: '${B}', cache_salt: salt-b}\n"
        "waivers: [{rule: isolation/foreign-text, reason: no leak is waived, until: 2030-01-01}]\n"
    )
    yield path


def test_the_command_line_comes_first_and_replay_takes_the_file(tmp_path: Path) -> None:
    keys = {"A": f"{SECRET}-a", "B": f"{SECRET}-b"}
    with served(tmp_path, "glm-5.3", "--context", "4096") as url, _file(tmp_path, url) as path:
        options = ("--model", "glm-5.3-lab", "--api", "chat", "--context", "4096", "-q")
        checked = kvcanary(tmp_path, "check", str(path), *options, extra=keys)
        assert checked.code == 1, checked.said
        (record_path,) = records(tmp_path)
        replayed = kvcanary(
            tmp_path, "replay", str(record_path), "F1", "--text", "fresh", "-q", extra=keys
        )
        assert replayed.code == 1, replayed.said
        unset = kvcanary(tmp_path, "replay", str(record_path), "F1", "-q")
        assert unset.code == 2
        assert "the environment variable A is not set" in unset.err
    for written in records(tmp_path):
        record = load(written)
        assert record.info.target == str(path)
        assert (record.info.model, record.info.api) == ("glm-5.3-lab", "chat")
        assert record.info.context_tokens == 4_096
        assert (record.info.separation.keys, record.info.separation.salts) == (2, 2)
        assert {e.identity for e in record.exchanges} == {0, 1}
        raw = written.read_text()
        assert SECRET not in raw
        assert "salt-a" not in raw
        assert all(json.loads(line) for line in raw.splitlines())
    assert "tenants were sent as 2 identities: 2 API keys, 2 cache salts" in checked.out
    assert SECRET not in checked.out + checked.err
