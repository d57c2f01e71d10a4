"""The metrics of a run: valid, few, never an old figure for an unknown one; in a file and at a real gateway."""

import base64
import math
import os
import re
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvcanary.errors import ConfigError, UsageError
from kvcanary.record.run import RunRecord
from kvcanary.report import pushgateway, textfile
from kvcanary.report.deliver import GATEWAY_CREDENTIALS, asked_for
from kvcanary.report.metrics import LAST_SUCCESS
from tests import needs
from tests.cli.command import kvcanary
from tests.record.test_journal import write
from tests.report.real_pushgateway import pushgateway as real_gateway
from tests.report.scenes import VERDICTS, cut_off, failing, hostile, inconclusive, passing

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            assert sample.timestamp is None
            found[key] = sample.value
    return found


def value(told: Samples, name: str, **labels: str) -> float:
    (only,) = [v for (n, at), v in told.items() if n == name and labels.items() <= dict(at).items()]
    return only


def names(text: str) -> set[str]:
    return {name for name, _ in samples(text)}


@pytest.mark.parametrize("scene", VERDICTS)
def test_promtool_has_nothing_to_say_against_it(scene: str) -> None:
    promtool = needs.program("promtool", "python3 tools/install_test_servers.py")
    ended = subprocess.run(
        [promtool, "check", "metrics"],
        input=textfile.render(VERDICTS[scene]()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("scene", VERDICTS)
def test_every_family_is_always_there(scene: str) -> None:
    """A gateway keeps what is not pushed again: an old pool would stand for one that is unknown now."""
    all_of_them = names(textfile.render(passing()))
    assert len(all_of_them) > 20
    missing = all_of_them - names(textfile.render(VERDICTS[scene]()))
    assert missing <= {LAST_SUCCESS}


def test_what_is_unknown_is_no_number() -> None:
    told = samples(textfile.render(cut_off()))
    for name in (
        "kvcanary_capacity_ratio",
        "kvcanary_first_token_seconds",
        "kvcanary_run_duration_seconds",
    ):
        assert math.isnan(value(told, name)), name
    assert value(told, "kvcanary_verdict", status="inconclusive") == 1
    assert value(told, "kvcanary_verdict", status="pass") == 0


def test_figures_are_those_of_the_record() -> None:
    run = failing()
    told = samples(textfile.render(run))
    assert value(told, "kvcanary_findings", severity="leak") == 1
    assert value(told, "kvcanary_findings", severity="availability") == 0
    assert value(told, "kvcanary_rule_findings", rule="isolation/foreign-text") == 1
    assert value(told, "kvcanary_claim", claim="isolation", status="fail") == 1
    assert value(told, "kvcanary_capacity_ratio", role="prefill") == 20_000 / 65_536
    assert value(told, "kvcanary_run_requests") == len(run.exchanges)
    assert value(told, "kvcanary_exit_code") == 1


def test_labels_are_few_and_hold_no_address() -> None:
    run = passing()
    about = run.info.model_copy(update={"target": "https://user:pw@llm.example:8443/v1?key=x"})
    text = textfile.render(run.model_copy(update={"info": about}))
    assert {dict(at)["target"] for _, at in samples(text)} == {"llm.example:8443"}
    told = samples(textfile.render(hostile()))
    values = {(k, v) for _, at in told for k, v in at}
    assert all(len(v) <= 80 and v.isprintable() for _, v in values)
    assert {v for k, v in values if k == "probe"} == {"other"}
    assert len(told) < 150


# the textfile


def test_a_file_is_readable_for_the_collector_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        textfile.deliver(passing(), str(tmp_path / "kvcanary.prom"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kvcanary.prom").stat().st_mode) == 0o644
    assert [p.name for p in tmp_path.iterdir()] == ["kvcanary.prom"]


def test_a_run_that_does_not_pass_keeps_when_one_did(tmp_path: Path) -> None:
    path = tmp_path / "kvcanary.prom"
    textfile.deliver(failing(), str(path))
    assert LAST_SUCCESS not in names(path.read_text()), "none ever passed"
    textfile.deliver(passing(), str(path))
    passed = value(samples(path.read_text()), LAST_SUCCESS)
    for run in (failing(), inconclusive(), cut_off()):
        textfile.deliver(run, str(path))
        assert value(samples(path.read_text()), LAST_SUCCESS) == passed
    other = passing().info.model_copy(update={"target": "http://other/v1"})
    textfile.deliver(failing(info=other), str(path))
    assert LAST_SUCCESS not in names(path.read_text()), "another deployment's success"


@pytest.mark.parametrize("text", ["not metrics {", "\xff\xfe", "kvcanary_last_success 1 2 3", ""])
def test_a_file_of_somebody_else_is_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    path.write_bytes(text.encode("latin-1"))
    textfile.deliver(failing(), str(path))
    assert path.read_text() == textfile.render(failing())


# the pushgateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    with real_gateway() as url:
        yield url


def scraped(gateway: str) -> Samples:
    with urllib.request.urlopen(f"{gateway}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {k: v for k, v in samples(text).items() if k[0].startswith("kvcanary_")}


def test_a_gateway_has_the_last_run_and_the_last_success(gateway: str, tmp_path: Path) -> None:
    ended = kvcanary(
        tmp_path,
        *("report", str(write(tmp_path / "run.jsonl", passing()).written_path)),
        *("--report", f"pushgateway={gateway}/"),
    )
    assert (ended.code, ended.err) == (0, "")
    passed = value(scraped(gateway), LAST_SUCCESS)
    assert value(scraped(gateway), "kvcanary_verdict", status="pass") == 1
    pushgateway.deliver(failing(), gateway)
    told = scraped(gateway)
    assert value(told, LAST_SUCCESS) == passed
    assert value(told, "kvcanary_findings", severity="leak") == 1
    assert value(told, "kvcanary_capacity_ratio", role="prefill") < 1
    pushgateway.deliver(cut_off(), gateway)
    told = scraped(gateway)
    assert value(told, LAST_SUCCESS) == passed
    assert value(told, "kvcanary_findings", severity="leak") == 0
    assert math.isnan(value(told, "kvcanary_capacity_ratio")), "no worker's old figure is left"
    assert {dict(at)["job"] for _, at in told} == {"kvcanary"}


@pytest.mark.parametrize("scene", VERDICTS)
def test_a_gateway_takes_every_verdict(scene: str, gateway: str) -> None:
    pushgateway.deliver(VERDICTS[scene](), gateway)


def test_a_gateway_that_is_not_there_is_said(tmp_path: Path, unused_port: int) -> None:
    url = f"http://127.0.0.1:{unused_port}"
    record = write(tmp_path / "run.jsonl", passing()).written_path
    ended = kvcanary(tmp_path, "report", str(record), "--report", f"pushgateway={url}")
    assert ended.code == 2
    assert f"The pushgateway {url} did not take the metrics: Connection refused." in ended.err


class _Redirects(BaseHTTPRequestHandler):
    seen: list[str]

    def do_POST(self) -> None:
        self.seen.append(f"POST {self.headers['Authorization']}")
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.seen.append(f"GET {self.headers['Authorization']}")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_a_gateway_that_redirects_has_not_taken_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed, it would be a GET without a body, with the credentials, and looks like a success."""
    monkeypatch.setenv("KVCANARY_PUSHGATEWAY_AUTH", "me:secret")
    _Redirects.seen = []
    with HTTPServer(("127.0.0.1", 0), _Redirects) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(ConfigError, match="HTTP 302"):
                pushgateway.deliver(passing(), f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert [seen.split()[0] for seen in _Redirects.seen] == ["POST"]


class _Refuses(BaseHTTPRequestHandler):
    seen: list[str | None]

    def do_POST(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b"SERVERTEXT")

    def log_message(self, *_: object) -> None:
        return


def test_credentials_come_from_the_environment_and_are_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []
    handler = type("Handler", (_Refuses,), {"seen": seen})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            monkeypatch.setenv(GATEWAY_CREDENTIALS, "canary:hunter2")
            with pytest.raises(ConfigError) as refused:
                pushgateway.deliver(passing(), f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
    assert seen == [f"Basic {base64.b64encode(b'canary:hunter2').decode()}"]
    assert str(refused.value).endswith("did not take the metrics: HTTP 401.")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@gateway:9091",
        "gateway:9091",
        "ftp://gateway",
        "http://",
        "http://gateway:port",
        "http://gateway:99999",
        "http://[::1",
        "http://gateway/?token=hunter2",
    ],
)
def test_what_is_no_address_is_said_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UsageError) as error:
        asked_for(f"pushgateway={url}")
    assert "hunter2" not in str(error.value)


def test_a_record_of_thousands_of_probes_stays_small() -> None:
    run: RunRecord = failing()
    assert run.verdict
    strata = [
        s.model_copy(update={"name": f"probe-{n}/x"})
        for n in range(3_000)
        for s in run.verdict.strata[:1]
    ]
    verdict = run.verdict.model_copy(update={"strata": tuple(strata)})
    text = textfile.render(run.model_copy(update={"verdict": verdict}))
    assert len(samples(text)) < 500
    assert not re.search(r"probe-2999", text)
