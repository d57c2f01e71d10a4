"""Metadata documents: JSON or plain text, fetched within a deadline and a size."""

from dataclasses import dataclass, field

import httpx

from kvcanary.probing.client.body import kind_of
from kvcanary.probing.outcome import BodyKind, Reason


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A metadata document.

    Attributes:
        value: the parsed JSON, None if there is none; other people's data, so in no ``repr``.
        reason: why there is no value; None if there is one.
    """

    status: int | None
    value: object = field(default=None, repr=False)
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class TextReply:
    """A metadata document that is plain text.

    Attributes:
        text: other people's data, so in no ``repr``; None if there is none. What is no UTF-8 is
            replaced.
        reason: why there is no text; None if there is some.
    """

    status: int | None
    text: str | None = field(default=None, repr=False)
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a metadata document, or why there are none."""

    status: int | None
    body: bytes = field(default=b"", repr=False)
    reason: Reason | None = None

    @property
    def is_html(self) -> bool:
        """It looks like a page for people."""
        return kind_of("", self.body[:4096].lstrip()) is BodyKind.HTML


async def fetch(
    http: httpx.AsyncClient, url: str, accept: str, auth: httpx.Auth | None, max_bytes: int
) -> Document:
    """Get the document at `url`; raises what httpx raises when there is no response."""
    body = bytearray()
    async with http.stream("GET", url, auth=auth, headers={"Accept": accept}) as got:
        status = got.status_code
        if 300 <= status < 400:
            return Document(status, reason=Reason.REDIRECT)
        async for chunk in got.aiter_raw():
            body += chunk
            if len(body) > max_bytes:
                return Document(status, reason=Reason.TOO_LARGE)
    if status in {401, 403}:
        return Document(status, reason=Reason.UNAUTHORIZED)
    if status in {404, 405, 501}:
        return Document(status, reason=Reason.PATH_NOT_FOUND)
    if status >= 400:
        return Document(status, reason=Reason.CLIENT_ERROR if status < 500 else Reason.SERVER_ERROR)
    if not body.strip():
        return Document(status, reason=Reason.EMPTY_BODY)
    return Document(status, bytes(body))
