"""Posts a notice to a webhook. It changes no verdict, and never keeps one waiting for long."""

import logging
from urllib.parse import urlsplit

from kvcanary.errors import UsageError
from kvcanary.record.notice import Notice, NoticedFinding, Outcome
from kvcanary.record.run import RunRecord
from kvcanary.report.printable import printable
from kvcanary.verdict.findings import Severity

MOST_FINDINGS = 20
MOST_TEXT = 500
"""Characters of any one text."""
CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0
RETRIES = 3
PAUSE_SECONDS = 0.5
"""Before the second try; each further one waits twice as long."""
BUSY = (429, 500, 502, 503, 504)
_WORST_FIRST = list(Severity)


def checked_url(url: str) -> str:
    """Raises UsageError when nothing can be posted there. The URL is not shown: it may hold a token."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname
    except ValueError:
        whole = None
    if not whole:
        raise UsageError("--notify takes an http:// or https:// URL (what was given is not shown).")
    return url


def notice(
    outcome: Outcome,
    previous: Outcome | None,
    exit_code: int,
    record: RunRecord | None,
    *,
    target: str,
    suite: str,
    why: str,
    now: float,
) -> Notice:
    """What is posted. ``why`` and ``now`` serve a run that left no record."""
    told = record.findings if record else ()
    findings = sorted(told, key=lambda f: _WORST_FIRST.index(f.severity))
    verdict = record.verdict if record else None
    headline = _plain(verdict.headline if verdict else why)
    was = f" (was {previous})" if previous else ""
    return Notice(
        text=f"kvcanary {_plain(suite)} on {_plain(target)}: {outcome}{was}. {headline}",
        outcome=outcome,
        previous=previous,
        exit_code=exit_code,
        headline=headline,
        target=_plain(target),
        suite=_plain(suite),
        model=_plain(record.info.model) if record else None,
        run=f"{record.info.run:07x}" if record else None,
        at=record.info.started_at if record else now,
        findings=tuple(
            NoticedFinding(rule=f.rule, severity=f.severity.value, title=_plain(f.title))
            for f in findings[:MOST_FINDINGS]
        ),
        findings_in_all=len(findings),
    )


def _plain(text: str) -> str:
    """What no chat takes for a mention or a link: titles may hold names that a server told."""
    shown = printable(text[:MOST_TEXT])
    return shown.translate({ord("<"): "\u2039", ord(">"): "\u203a"})


def post(url: str, told: Notice, *, trust_env: bool = False) -> str | None:
    """Why it was not delivered, after some tries; None where it was. Neither says where the URL leads."""
    import requests
    from urllib3.util import Retry

    # urllib3 tells each retry with the URL's path, and that is where webhooks have their secret
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    retry = Retry(
        total=RETRIES,
        backoff_factor=PAUSE_SECONDS,
        status_forcelist=BUSY,
        allowed_methods=None,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    with requests.Session() as session:
        session.trust_env = trust_env
        for scheme in ("http://", "https://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
        try:
            answer = session.post(
                url,
                data=told.model_dump_json().encode(),
                headers={"Content-Type": "application/json"},
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False,
                stream=True,  # what it answers is not read
            )
        except (requests.RequestException, ValueError) as error:
            return f"it was not reached ({type(error).__name__})"
        answer.close()
    return (
        None if answer.ok and not answer.is_redirect else f"it answered HTTP {answer.status_code}"
    )
