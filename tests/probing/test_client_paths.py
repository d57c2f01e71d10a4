"""How requests reach the server: client certificates, proxies, whose key, extra headers and fields."""

import ssl
from dataclasses import dataclass

import pytest
import trustme

from kvcanary.errors import ConfigError, UsageError
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import (
    RESERVED_FIELDS,
    ClientCertificate,
    Endpoint,
    Identity,
    PlainText,
    Proxy,
    Request,
    SecretKey,
)
from kvcanary.probing.outcome import Outcome, Reason, Reply
from tests.probing.proxy import Proxied, proxy
from tests.probing.rogue_server import Call, Rogue, delta, rogue_server, run, sse, usage

PATIENT = 60.0
ALICE = Identity(
    SecretKey("key-of-alice"),
    (("X-Org", SecretKey("wonderland")),),
    SecretKey("salt-of-alice"),
    "alice",
    "adapter-a",
)


def request(identity: Identity | None = None) -> Request:
    more = {} if identity is None else {"identity": identity}
    return Request("kvc-1", PlainText("hello"), 4, "tenant-1", **more)  # type: ignore[arg-type]


async def answer(call: Call) -> None:
    await call.start_stream()
    await call.say(sse(delta("hi", "stop"), usage(), "[DONE]"))
    call.hang_up()


async def ask(endpoint: Endpoint, *identities: Identity | None) -> list[Reply]:
    async with Client(endpoint) as client:
        return [
            await client.send(request(identity), deadline_seconds=PATIENT)
            for identity in identities or (None,)
        ]


# -- whose key -------------------------------------------------------------------------------------


def test_each_tenant_is_sent_as_itself() -> None:
    async def exchange() -> list[Call]:
        async with rogue_server(answer) as server:
            endpoint = Endpoint(
                server.base_url,
                "tiny",
                api_key=SecretKey("key-of-all"),
                headers=(("X-Team", SecretKey("blue")),),
                fields=(("reasoning_effort", '"low"'), ("nested", '{"a": [1, null]}')),
            )
            replies = await ask(endpoint, None, ALICE, Identity(cache_salt=SecretKey("salt-2")))
            assert [r.outcome for r in replies] == [Outcome.ANSWERED] * 3
            return server.calls

    nobody, alice, third = run(exchange())
    assert nobody.headers["authorization"] == third.headers["authorization"] == "Bearer key-of-all"
    assert alice.headers["authorization"] == "Bearer key-of-alice"
    assert [c.headers.get("x-org") for c in (nobody, alice, third)] == [None, "wonderland", None]
    assert [c.headers["x-team"] for c in (nobody, alice, third)] == ["blue"] * 3
    told = [
        tuple(c.fields.get(name) for name in ("model", "user", "cache_salt"))
        for c in (nobody, alice, third)
    ]
    assert told == [
        ("tiny", "tenant-1", None),
        ("adapter-a", "alice", "salt-of-alice"),
        ("tiny", "tenant-1", "salt-2"),
    ]
    for call in (nobody, alice, third):
        assert call.fields["reasoning_effort"] == "low"
        assert call.fields["nested"] == {"a": [1, None]}


def test_metadata_may_be_asked_for_as_a_tenant() -> None:
    async def document(call: Call) -> None:
        await call.answer(200, b"{}")

    async def exchange() -> list[str | None]:
        async with (
            rogue_server(document) as server,
            Client(Endpoint(server.base_url, "tiny", api_key=SecretKey("key-of-all"))) as client,
        ):
            for with_key, identity in ((True, ALICE), (True, Identity()), (False, ALICE)):
                await client.get_json(server.base_url, with_key=with_key, identity=identity)
            return [call.headers.get("authorization") for call in server.calls]

    assert run(exchange()) == ["Bearer key-of-alice", "Bearer key-of-all", None]


def test_an_object_of_the_users_is_added_to_and_his_values_stay() -> None:
    async def exchange() -> dict[str, object]:
        async with rogue_server(answer) as server:
            endpoint = Endpoint(
                server.base_url,
                "tiny",
                fields=(("chat_template_kwargs", '{"depth": 2}'), ("reasoning_effort", '"low"')),
            )
            async with Client(endpoint) as client:
                extra = (
                    ("chat_template_kwargs", (("enable_thinking", False),)),
                    ("reasoning_effort", "none"),
                )
                asked = Request("kvc-1", PlainText("hello"), 4, "tenant-1", extra=extra)
                await client.send(asked, deadline_seconds=PATIENT)
            return server.calls[0].fields

    fields = run(exchange())
    assert fields["chat_template_kwargs"] == {"depth": 2, "enable_thinking": False}
    assert fields["reasoning_effort"] == "low"


@pytest.mark.parametrize("name", sorted(RESERVED_FIELDS))
def test_a_field_of_kvcanarys_own_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is set by kvcanary itself"):
        Endpoint("http://host/v1", "tiny", fields=((name, "1"),))


def test_no_identity_and_no_proxy_shows_a_secret() -> None:
    door = Endpoint(
        "http://host/v1",
        "tiny",
        fields=(("x", '"hunter2"'),),
        certificate=ClientCertificate("c.pem", password=SecretKey("hunter2")),
        proxy=Proxy("http://proxy", "me", SecretKey("hunter2")),
    )
    shown = f"{ALICE!r} {door!r} {request(ALICE)!r}"
    for secret in ("hunter2", "key-of", "salt-of", "wonderland"):
        assert secret not in shown


# -- client certificates ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Papers:
    """An authority, and certificates as files: ``both`` holds certificate and key."""

    authority: trustme.CA
    ca: str
    both: str
    certificate: str
    key: str
    encrypted_key: str
    others_key: str
    strangers: str


PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    folder = tmp_path_factory.mktemp("papers")
    authority = trustme.CA()
    mine = authority.issue_cert("me@example.com")
    other = authority.issue_cert("you@example.com")
    stranger = trustme.CA().issue_cert("me@example.com")
    key = mine.private_key_pem.bytes()
    encrypted = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )

    def file(name: str, content: bytes) -> str:
        (folder / name).write_bytes(content)
        return str(folder / name)

    return Papers(
        authority,
        file("ca", authority.cert_pem.bytes()),
        file("both", mine.private_key_and_cert_chain_pem.bytes()),
        file("certificate", mine.cert_chain_pems[0].bytes()),
        file("key", key),
        file("encrypted", encrypted),
        file("other", other.private_key_pem.bytes()),
        file("stranger", stranger.private_key_and_cert_chain_pem.bytes()),
    )


def mutual(papers: Papers) -> ssl.SSLContext:
    """A server's side that demands a certificate of its own authority's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    papers.authority.issue_cert("127.0.0.1").configure_cert(context)
    papers.authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def ask_with(papers: Papers, certificate: ClientCertificate | None) -> Reply:
    async def exchange() -> Reply:
        async with rogue_server(answer, tls=mutual(papers)) as server:
            endpoint = Endpoint(server.base_url, "tiny", ca_file=papers.ca, certificate=certificate)
            return (await ask(endpoint))[0]

    return run(exchange())


def test_a_client_certificate_opens_the_door(papers: Papers) -> None:
    for certificate in (
        ClientCertificate(papers.both),
        ClientCertificate(papers.certificate, papers.key),
        ClientCertificate(papers.certificate, papers.encrypted_key, SecretKey(PASSWORD)),
    ):
        assert ask_with(papers, certificate).outcome is Outcome.ANSWERED


def test_without_the_right_one_nothing_is_reached(papers: Papers) -> None:
    for certificate in (None, ClientCertificate(papers.strangers)):
        assert ask_with(papers, certificate).outcome is Outcome.NOT_REACHED


@pytest.mark.parametrize(
    ("key", "password"),
    [
        ("encrypted_key", None),
        ("encrypted_key", "wrong"),
        ("others_key", None),
        ("ca", None),
        ("missing", None),
    ],
)
def test_a_certificate_that_cannot_be_used(papers: Papers, key: str, password: str | None) -> None:
    certificate = ClientCertificate(
        papers.certificate,
        getattr(papers, key, "/nowhere/key"),
        SecretKey(password) if password else None,
    )
    with pytest.raises(
        ConfigError, match=r"The client certificate .* could not be used: "
    ) as caught:
        Client(Endpoint("https://host/v1", "tiny", certificate=certificate))
    assert papers.certificate in str(caught.value)
    assert "wrong'" not in str(caught.value)


# -- proxies ---------------------------------------------------------------------------------------


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def sent_through(
    running: Proxied, server: Rogue, papers: Papers | None = None, past: tuple[str, ...] = ()
) -> Reply:
    """One request by way of the proxy."""
    endpoint = Endpoint(
        server.base_url,
        "tiny",
        api_key=SecretKey("key-of-all"),
        ca_file=papers.ca if papers else None,
        certificate=ClientCertificate(papers.both) if papers else None,
        proxy=Proxy(running.url, "me", SecretKey("hunter2"), past),
    )
    return (await ask(endpoint))[0]


@pytest.mark.usefixtures("no_environment")
def test_a_proxy_forwards_what_is_not_encrypted() -> None:
    async def exchange() -> tuple[Reply, Proxied, Rogue]:
        async with proxy("me:hunter2") as running, rogue_server(answer) as server:
            return await sent_through(running, server), running, server

    reply, running, server = run(exchange())
    assert reply.outcome is Outcome.ANSWERED
    (passed,) = running.passed
    assert passed.url == f"{server.base_url}/chat/completions"
    (call,) = server.calls
    assert "proxy-authorization" not in call.headers
    assert call.headers["authorization"] == "Bearer key-of-all"


@pytest.mark.usefixtures("no_environment")
def test_a_proxy_tunnels_tls_and_sees_no_key(papers: Papers) -> None:
    async def exchange() -> tuple[Reply, Proxied, Rogue]:
        async with (
            proxy("me:hunter2") as running,
            rogue_server(answer, tls=mutual(papers)) as server,
        ):
            return await sent_through(running, server, papers), running, server

    reply, running, server = run(exchange())
    assert reply.outcome is Outcome.ANSWERED
    (passed,) = running.passed
    assert (passed.method, passed.url) == ("CONNECT", f"127.0.0.1:{server.port}")
    assert "authorization" not in passed.headers
    assert server.calls[0].headers["authorization"] == "Bearer key-of-all"


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_that_does_not_let_one_through(papers: Papers, *, tls: bool) -> None:
    async def exchange() -> Reply:
        async with (
            proxy("me:other") as running,
            rogue_server(answer, tls=mutual(papers) if tls else None) as server,
        ):
            return await sent_through(running, server, papers)

    assert run(exchange()).outcome is Outcome.NOT_REACHED


@pytest.mark.parametrize(
    ("past", "is_past"),
    [
        (("127.0.0.1",), True),
        (("0.0.1",), True),
        ((".0.0.1",), True),
        (("127.0.0.1:{port}",), True),
        (("127.0.0.1:1",), False),
        (("7.0.0.1",), False),
        (("example.com",), False),
    ],
)
@pytest.mark.usefixtures("no_environment")
def test_some_hosts_are_reached_past_the_proxy(past: tuple[str, ...], *, is_past: bool) -> None:
    async def exchange() -> tuple[Reply, int]:
        async with proxy("me:hunter2") as running, rogue_server(answer) as server:
            named = tuple(name.format(port=server.port) for name in past)
            return await sent_through(running, server, past=named), len(running.passed)

    reply, count = run(exchange())
    assert (reply.outcome, count) == (Outcome.ANSWERED, 0 if is_past else 1)


def test_the_proxy_that_was_named_comes_before_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def exchange() -> tuple[Reply, int, int]:
        async with proxy("me:hunter2") as running, proxy() as other, rogue_server(answer) as server:
            monkeypatch.setenv("http_proxy", other.url)
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            endpoint = Endpoint(
                server.base_url,
                "tiny",
                proxy=Proxy(running.url, "me", SecretKey("hunter2")),
                trust_env=True,
            )
            (reply,) = await ask(endpoint)
            return reply, len(running.passed), len(other.passed)

    reply, named, environments = run(exchange())
    assert (reply.outcome, named, environments) == (Outcome.ANSWERED, 1, 0)


@pytest.mark.usefixtures("no_environment")
def test_a_proxy_that_is_not_there(unused_port: int) -> None:
    endpoint = Endpoint(
        "http://nohost.invalid/v1", "tiny", proxy=Proxy(f"http://127.0.0.1:{unused_port}")
    )
    (reply,) = run(ask(endpoint))
    assert (reply.outcome, reply.reason) == (Outcome.NOT_REACHED, Reason.CONNECTION_REFUSED)


@pytest.mark.parametrize("url", ["socks5://proxy:1080", "http://me:hunter2@proxy", "proxy:3128"])
def test_proxies_that_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Proxy(url)
    assert "hunter2" not in str(caught.value)
