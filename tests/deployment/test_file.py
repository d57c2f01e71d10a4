"""The deployment file: what it may say, what becomes of it, and how each mistake is told."""

import json
import re
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.deployment.facts import Role
from kvcanary.deployment.file import DeploymentFile, load_deployment
from kvcanary.deployment.target import GpuReader, GpuSource, KnownWorker, Target
from kvcanary.errors import ConfigError
from kvcanary.probing.endpoint import Api, SecretKey
from kvcanary.probing.yaml_file import load_yaml

SECRET = "hunter2-swordfish"
LEAST = "front_door: {url: 'http://127.0.0.1:1/v1'}\n"
WHOLE = """\
front_door:
  url: https://llm.example.com/v1/
  model: glm-5.3
  api: completions
  stream: false
  key: ${KEY}
  headers:
    X-Team: team-${TEAM}
  body:
    reasoning_effort: low
    chat_template_kwargs: {depth: [1, 2.5, null, true]}
promises:
  context: ${CONTEXT}
  output: 4_096
tenants:
  - key_file: keys/a
    headers: {X-Org: a}
    cache_salt: salt a
    user: alice
  - key: ${KEY_B}
    model: adapter-b
workers:
  prefill:
    - url: http://p1:30000/
      metrics: http://p1:9100/metrics
      engine: sglang
      key: ${KEY_B}
  decode:
    - url: http://d1:30000
trust_discovered: true
tls:
  ca_file: ca.pem
  certificate_file: client.pem
  key_file: client.key
  key_password: ${PASSWORD}
proxy:
  url: http://proxy:3128
  user: me
  password: ${PASSWORD}
  no_proxy: [.internal, "p1:30000"]
prometheus:
  url: http://prometheus:9090
  labels: {job: llm}
  role_label: role
  token_file: keys/a
gpus:
  - reader: nvml
    indices: [0, 1]
    worker: http://p1:30000
  - reader: dcgm
    labels: {Hostname: gpu-1}
waivers:
  - rule: capacity/pool-below-context
    worker: http://p1:30000/
    reason: ordered more memory
    until: 2026-12-31
"""
VARIABLES = {
    "KEY": "key-one",
    "KEY_B": "key-two",
    "TEAM": "blue",
    "CONTEXT": "1048576",
    "PASSWORD": "pass word",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "kvcanary.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str, **variables: str) -> DeploymentFile:
    return load_yaml(written(folder, text), DeploymentFile, variables.get)


def complaint(folder: Path, text: str, **variables: str) -> str:
    """What is wrong with the text, less its path; nothing that was raised shows the secret."""
    path = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path, DeploymentFile, variables.get)
    assert SECRET not in _with_locals(caught.value)
    said = str(caught.value)
    assert said.startswith(str(path))
    return said.replace(f"{path}:", "").replace(str(path), "")


def _with_locals(error: BaseException) -> str:
    """The traceback with the locals of every frame but the tests' own."""
    assert error.__traceback__
    error.__traceback__ = error.__traceback__.tb_next
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format())


def revealed(pairs: tuple[tuple[str, SecretKey], ...]) -> list[tuple[str, str]]:
    return [(name, value.reveal()) for name, value in pairs]


@pytest.fixture
def whole(tmp_path: Path) -> Target:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "a").write_text("key-a\r\n")
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text("PEM")
    return loaded(tmp_path, WHOLE, **VARIABLES).target("kvcanary.yaml")


def test_everything_that_a_file_says_arrives(whole: Target, tmp_path: Path) -> None:
    door = whole.endpoint
    assert (door.base_url, door.model, door.api, door.stream) == (
        "https://llm.example.com/v1",
        "glm-5.3",
        Api.COMPLETIONS,
        False,
    )
    assert door.api_key
    assert door.api_key.reveal() == "key-one"
    assert revealed(door.headers) == [("X-Team", "team-blue")]
    assert {name: json.loads(text) for name, text in door.fields} == {
        "reasoning_effort": "low",
        "chat_template_kwargs": {"depth": [1, 2.5, None, True]},
    }
    assert door.ca_file == str(tmp_path / "ca.pem")
    assert door.certificate
    assert door.certificate.file == str(tmp_path / "client.pem")
    assert door.certificate.key_file == str(tmp_path / "client.key")
    assert door.certificate.password == SecretKey("pass word")
    assert door.proxy
    assert (door.proxy.url, door.proxy.user, door.proxy.password, door.proxy.past) == (
        "http://proxy:3128",
        "me",
        SecretKey("pass word"),
        (".internal", "p1:30000"),
    )
    assert (whole.name, whole.context_tokens, whole.output_tokens) == (
        "kvcanary.yaml",
        1_048_576,
        4_096,
    )
    first, second = whole.identities
    assert (first.api_key, first.cache_salt) == (SecretKey("key-a"), SecretKey("salt a"))
    assert (first.user, first.model, revealed(first.headers)) == ("alice", None, [("X-Org", "a")])
    assert (second.api_key, second.model) == (SecretKey("key-two"), "adapter-b")
    assert whole.workers == (
        KnownWorker(
            Role.PREFILL,
            "http://p1:30000",
            "http://p1:9100/metrics",
            "sglang",
            SecretKey("key-two"),
        ),
        KnownWorker(Role.DECODE, "http://d1:30000"),
    )
    assert whole.trust_discovered
    assert whole.prometheus
    assert (whole.prometheus.url, whole.prometheus.selector, whole.prometheus.role_label) == (
        "http://prometheus:9090",
        (("job", "llm"),),
        "role",
    )
    assert whole.prometheus.token == SecretKey("key-a")
    assert whole.prometheus.ca_file == str(tmp_path / "ca.pem")
    assert whole.gpus == (
        GpuSource(GpuReader.NVML, (0, 1), worker="http://p1:30000"),
        GpuSource(GpuReader.DCGM, selector=(("Hostname", "gpu-1"),)),
    )
    assert [(w.rule, w.worker) for w in whole.waivers] == [
        ("capacity/pool-below-context", "http://p1:30000")
    ]


def test_no_secret_shows_itself(whole: Target) -> None:
    shown = f"{whole!r} {whole.identities!r}"
    for secret in ("key-one", "key-two", "key-a", "pass word", "blue", "salt a", "alice", "effort"):
        assert secret not in shown


def test_the_least_file(tmp_path: Path) -> None:
    target = loaded(tmp_path, LEAST).target("x")
    assert target.endpoint.api_key is None
    assert (target.identities, target.workers, target.waivers, target.gpus) == ((), (), (), ())
    assert target.context_tokens is None
    assert not target.trust_discovered


def test_the_first_tenants_key_is_the_front_doors_where_that_has_none(tmp_path: Path) -> None:
    target = loaded(tmp_path, LEAST + "tenants: [{user: a}, {key: '${K}'}]\n", K="k").target("x")
    assert target.endpoint.api_key == SecretKey("k")


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("front_dor: {}\n", "1:1: front_dor: there is no such key; did you mean `front_door`?"),
        (
            "front_door:\n  url: http://h/v1\n  modle: x\n",
            "3:3: front_door.modle: there is no such key; did you mean `model`?",
        ),
        ("front_door: {}\n", "1:1: front_door.url: this key is missing"),
        ("front_door:\n  url: 7\n", "2:3: front_door.url: text is needed"),
        ("front_door:\n  url: ftp://h\n", "2:3: front_door.url: The URL is no http(s) URL"),
        (
            "front_door:\n  url: http://u:hunter2-swordfish@h\n",
            "2:3: front_door.url: The URL holds",
        ),
        (
            "front_door:\n  url: http://h/v1\n  api: chats\n",
            "3:3: front_door.api: `chats` is not one of them; did you mean `chat`?",
        ),
        ("- a\n- b\n", "1:1: the file: keys with values are needed"),
        ("", "1:1: the file: keys with values are needed"),
        (LEAST + "front_door: {}\n", "2:1: `front_door` is given twice."),
        (
            LEAST + "promises: {context: much}\n",
            "2:12: promises.context: a whole number is needed",
        ),
        (LEAST + "promises: {context: 0}\n", "2:12: promises.context: input should be greater"),
        (LEAST + "promises: {context: 9, output: 9}\n", "2:1: promises: `output` leaves no room"),
        (LEAST + "tenants: {key: x}\n", "2:1: tenants: a list is needed"),
        (LEAST + "tenants: [{user: a}, {user: a}]\n", "tenants.0 and tenants.1 do not differ"),
        (
            LEAST + "workers: {prefil: []}\n",
            "2:11: workers.prefil: there is no such key; did you mean `prefill`?",
        ),
        (
            LEAST + "workers:\n  decode:\n    - {url: 'http://h'}\n    - {url: 'http://h/'}\n",
            "2:1: workers: two workers have one `url`",
        ),
        (LEAST + "gpus: [{reader: dcgm}]\n", "`gpus`: the reader `dcgm` needs a `url`"),
        (LEAST + "gpus: [{reader: nvml, url: 'http://h'}]\n", "gpus.0: `url` and `labels` are for"),
        (LEAST + "tls: {key_file: kvcanary.yaml}\n", "belong to a `certificate_file`"),
        (LEAST + "waivers: [{rule: a/b, reason: xxx, until: never}]\n", "waivers.0.until: "),
        ("a: [1\n", "not valid YAML"),
        ("a: \t!!python/object:os.system x\n", "not valid YAML"),
        ("front_door: &a {url: *a}\n", "too many values, or nested too deeply"),
        ("a: \x00\n", "not valid YAML"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    assert said in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("front_door: {url: 'http://h', key: KEY}", "front_door.key"),
        ("tenants: [{key: KEY}]", "tenants.0.key"),
        ("tls: {certificate_file: kvcanary.yaml, key_password: KEY}", "tls.key_password"),
        ("proxy: {url: 'http://h', password: KEY}", "proxy.password"),
        ("prometheus: {url: 'http://h', token: KEY}", "prometheus.token"),
        ("workers: {decode: [{url: 'http://h', key: KEY}]}", "workers.decode.0.key"),
    ],
)
def test_a_secret_is_not_written_into_the_file(section: str, place: str, tmp_path: Path) -> None:
    text = section if section.startswith("front") else f"{LEAST}{section}"
    said = complaint(tmp_path, text.replace("KEY", SECRET))
    assert f"{place}: a secret is not written into the file" in said
    loaded(tmp_path, text.replace("KEY", "'${K}'"), K=SECRET)


@pytest.mark.parametrize("bad", ["two\nlines", " ", "schnee☃", "\r"])
def test_a_key_that_no_header_can_carry(bad: str, tmp_path: Path) -> None:
    text = "front_door: {url: 'http://h', key: '${K}'}\n"
    assert "1:31: front_door.key: it is empty, or has" in complaint(tmp_path, text, K=SECRET + bad)


def test_a_key_and_a_key_file_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("k")
    said = complaint(tmp_path, "front_door: {url: 'http://h', key: '${K}', key_file: k}", K=SECRET)
    assert "front_door: `key` and `key_file` are both given" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "it is empty"),
        (b"two\nlines\n", "it is empty, or has spaces around it, line breaks"),
        (b"\xff\xfe", "has characters outside ASCII: it is no key"),
        (b"k" * 20_000, "has more than 16,384 bytes: it is no key"),
    ],
)
def test_a_key_file_that_holds_no_key(content: bytes | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "k").write_bytes(content)
    assert said in complaint(tmp_path, "front_door: {url: 'http://h', key_file: k}")


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_an_authority_that_cannot_be_read(what: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    said = complaint(tmp_path, f"{LEAST}tls:\n  ca_file: {what}\n")
    assert said.startswith(f"3:3: tls.ca_file: {tmp_path / what} cannot be read: ")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "headers: {Authorization: x}",
            "The extra header 'Authorization' is set by kvcanary itself",
        ),
        ("headers: {a b: x}", "An extra header has a name that HTTP cannot carry"),
        ("headers: {X-A: 7}", "the value of `X-A`: text is needed: put quotes around it"),
        ("headers: [a]", "a mapping is needed"),
        ("body: {messages: x}", "`messages` is set by kvcanary itself"),
        ("body: {x: .nan}", "it holds something that JSON cannot say"),
        ("body: {x: 2026-01-01}", "it holds something that JSON cannot say"),
    ],
)
def test_headers_and_fields_that_cannot_be_sent(section: str, said: str, tmp_path: Path) -> None:
    assert said in complaint(tmp_path, f"front_door:\n  url: http://h\n  {section}\n")


# -- variables -------------------------------------------------------------------------------------


def test_missing_variables_are_named_with_their_places(tmp_path: Path) -> None:
    text = "front_door:\n  url: ${URL}\n  key: ${KEY}\n  headers: {a: 'x${SET}y${EMPTY}'}\n"
    said = complaint(tmp_path, text, SET=SECRET, EMPTY="")
    assert said == (
        "2:8: the environment variable URL is not set, or is empty.\n"
        "3:8: the environment variable KEY is not set, or is empty.\n"
        "4:16: the environment variable EMPTY is not set, or is empty."
    )


@pytest.mark.parametrize("wrong", ["$KEY", "${}", "${1A}", "a$", "${A:-b}", "${KEY"])
def test_a_dollar_that_begins_nothing(wrong: str, tmp_path: Path) -> None:
    said = complaint(
        tmp_path, f"front_door: {{url: 'http://h', key: '{wrong}'}}", KEY=SECRET, A="a"
    )
    assert said == "1:36: `$` begins a variable: write `${NAME}`, or `$$` for a dollar."


def test_a_variable_is_no_key_no_comment_and_no_variable_again(tmp_path: Path) -> None:
    text = LEAST + "# ${NOT_SET}\ntenants: [{cache_salt: '$${A} ${B}'}]\n"
    (tenant,) = loaded(tmp_path, text, B="${A}$$").tenants
    assert tenant.cache_salt
    assert tenant.cache_salt.reveal() == "${A} ${A}$$"
    assert "1:1: ${B}: there is no such key" in complaint(tmp_path, "${B}: 1\n", B="front_door")


def test_a_variable_in_an_anchor_is_put_in_once(tmp_path: Path) -> None:
    text = (
        LEAST + "tenants:\n- {user: a, cache_salt: &s '$${B}${B}'}\n- {user: b, cache_salt: *s}\n"
    )
    first, second = loaded(tmp_path, text, B="x").tenants
    assert first.cache_salt == second.cache_salt == SecretKey("${B}x")


@pytest.mark.parametrize(
    "place",
    [
        "front_door: {url: '${V}'}",
        "front_door: {url: 'http://h', api: '${V}'}",
        "front_door: {url: 'http://h', stream: '${V}'}",
        "front_door: {url: 'http://h', body: '${V}'}",
        "front_door: {url: 'http://h', headers: {'Authorization': '${V}'}}",
        LEAST + "promises: {context: '${V}'}",
        LEAST + "promises: '${V}'",
        LEAST + "tenants: '${V}'",
        LEAST + "gpus: [{reader: '${V}'}]",
        LEAST + "waivers: [{rule: '${V}', reason: abc, until: '${V}'}]",
        LEAST + "workers: {decode: [{url: 'http://h', engine: '${V}'}]}",
        LEAST + "prometheus: {url: 'http://h', role_label: '${V}'}",
        LEAST + "prometheus: {url: 'http://h', labels: '${V}'}",
    ],
)
def test_what_a_variable_holds_is_in_no_complaint(place: str, tmp_path: Path) -> None:
    complaint(tmp_path, place, V=f"{SECRET} \n")


# -- files that are none ---------------------------------------------------------------------------


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load_deployment(tmp_path)
    path = tmp_path / "f"
    for content, said in (
        (b"\x7fELF\xff\xff", "is not UTF-8 text"),
        (b"\x00\x01\x02", "not valid YAML"),
        (b"a: 1\n" * 300_000, "is larger than 1,000,000 bytes"),
        (b"[" * 20_000, "nested too deeply|not valid YAML"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=said):
            load_deployment(path)


def test_a_bomb_of_aliases(tmp_path: Path) -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path = written(tmp_path, "\n".join(lines))
    with pytest.raises(ConfigError, match="too many values"):  # a repr of its nodes would never end
        load_deployment(path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(SECRET),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(sorted(DeploymentFile.model_fields)) | st.text(max_size=8),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_stands_there_is_a_file_or_a_mistake(document: object) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "kvcanary.yaml"
        path.write_text(json.dumps(document))
        with suppress(ConfigError):
            load_yaml(path, DeploymentFile, lambda _: None)


def test_the_example_of_the_docs_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deployment-file.md").read_text("utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = re.findall(r"\$\{(\w+)\}", example)
    target = loaded(tmp_path, example, **dict.fromkeys(names, "x") | {"TENANT_B_KEY": "y"}).target(
        "x"
    )
    assert len(target.identities) == 2
    assert len(target.workers) == 3
