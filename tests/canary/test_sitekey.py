"""The site key: made once, for its owner alone, and never shown."""

import multiprocessing
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType

import pytest

from kvcanary.canary.sitekey import SiteKey, _is_private, default_path, load_or_create
from kvcanary.errors import ConfigError

PROCESSES = 6


def race(path: str, barrier: "multiprocessing.synchronize.Barrier") -> None:
    """Make the key as one of several first runs; its fingerprint goes into a file beside it."""
    barrier.wait()
    key = load_or_create(Path(path))
    Path(f"{path}.{os.getpid()}").write_text(key.fingerprint())


def test_is_made_at_first_use_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "site.key"
    old = os.umask(0)
    try:
        key = load_or_create(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_or_create(path) == key
    assert [p.name for p in path.parent.iterdir()] == ["site.key"]


def test_first_runs_that_race_end_with_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "site.key"
    barrier = context.Barrier(PROCESSES)
    processes = [context.Process(target=race, args=(str(path), barrier)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    fingerprints = [p.read_text() for p in tmp_path.glob("site.key.*")]
    assert len(fingerprints) == PROCESSES
    assert set(fingerprints) == {load_or_create(path).fingerprint()}
    assert list(tmp_path.glob(".*")) == []


def test_the_loser_of_a_race_takes_the_key_of_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.key"
    link = os.link

    def second(draft: Path, final: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        load_or_create(path)
        link(draft, final)

    monkeypatch.setattr(os, "link", second)
    assert load_or_create(path) == load_or_create(path)
    assert [p.name for p in tmp_path.iterdir()] == ["site.key"]


@pytest.mark.parametrize(
    ("mode", "owner", "user", "private"),
    [
        (0o440, 0, 65532, True),  # a Secret, as Kubernetes mounts it with an fsGroup
        (0o440, 0, 0, False),
        (0o440, 65532, 65532, False),
        (0o444, 0, 65532, False),
        (0o660, 0, 65532, False),
        (0o400, 0, 65532, True),
    ],
)
def test_a_mounted_secret_is_private(mode: int, owner: int, user: int, private: bool) -> None:
    assert _is_private(mode, owner, user) is private


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o620])
def test_a_key_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "site.key"
    load_or_create(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"mode {mode:04o}.*chmod 600"):
        load_or_create(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        b"ab" * 31,
        b"ab" * 33,
        b"ab" * 32 + b"\nab",
        b"ab" * 32 + b"\nmore",
        b"ab" * 32 + b"\n\nab",
        b"\xff" * 32,
        "ä".encode() * 32,
        bytes(range(0x80, 0xA0)),
        b"\0" * 5_000,
    ],
)
def test_what_is_no_key_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "site.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"site\.key is not 64 hexadecimal digits.*Restore it"):
        load_or_create(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b" \n\n"])
def test_a_key_written_by_hand_is_read(tmp_path: Path, ending: bytes) -> None:
    path = tmp_path / "site.key"
    path.write_bytes(b"AB" * 32 + ending)
    path.chmod(0o600)
    assert load_or_create(path) == SiteKey(b"\xab" * 32)


def test_a_place_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_or_create(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory"):
        load_or_create(tmp_path / "file" / "site.key")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"could not be made.*KVCANARY_SITE_KEY_FILE"):
        load_or_create(tmp_path / "dangling")


def test_the_environment_may_name_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVCANARY_SITE_KEY_FILE", str(tmp_path / "mine"))
    assert default_path() == tmp_path / "mine"
    load_or_create()
    assert (tmp_path / "mine").exists()


def test_the_key_is_not_in_its_text() -> None:
    key = SiteKey(b"\x5a" * 32)
    shown = f"{key!r} {key} {[key]} {key.fingerprint()}"
    assert "5a5a5a5a" not in shown
    assert "ZZZZ" not in shown


def held_by(traceback: TracebackType | None) -> str:
    """All locals of kvcanary's frames, as ``pytest --showlocals`` and rich would show them."""
    shown = []
    while traceback:
        frame = traceback.tb_frame
        if "/kvcanary/" in frame.f_code.co_filename:
            shown += [repr(value) for value in frame.f_locals.values()]
        traceback = traceback.tb_next
    return "\n".join(shown)


@pytest.mark.parametrize(
    ("content", "mode"), [("5a" * 32, 0o644), ("5a" * 31, 0o600), ("5a" * 31 + "x", 0o600)]
)
def test_a_refused_key_is_not_in_the_locals_of_the_traceback(
    tmp_path: Path, content: str, mode: int
) -> None:
    path = tmp_path / "site.key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        load_or_create(path)
    shown = held_by(caught.value.__traceback__) + str(caught.value)
    assert "site.key" in shown
    assert "5a5a5a" not in shown
    assert "ZZZ" not in shown


def test_a_key_that_could_not_be_stored_is_not_in_the_locals_of_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(draft: Path, final: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(secrets, "token_bytes", lambda size: b"\x5a" * size)
    with pytest.raises(ConfigError, match="Operation not permitted") as caught:
        load_or_create(tmp_path / "site.key")
    shown = held_by(caught.value.__traceback__)
    assert "SiteKey()" in shown
    assert "ZZZ" not in shown
    assert "5a" * 8 not in shown  # a few are in the name of the draft
    assert list(tmp_path.iterdir()) == []


def test_keys_for_different_purposes_and_objects_have_nothing_in_common() -> None:
    key, other = SiteKey(bytes(32)), SiteKey(bytes(31) + b"\1")
    derived = [
        key.derive("words"),
        key.derive("cast"),
        key.derive("words", b""),
        key.derive("words", b"ab", b"c"),
        key.derive("words", b"a", b"bc"),
        key.derive("words", b"abc"),
        other.derive("words"),
    ]
    assert len(set(derived)) == len(derived)
    assert key.fingerprint() != other.fingerprint()
