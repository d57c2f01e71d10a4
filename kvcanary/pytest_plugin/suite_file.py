"""A suite file as pytest collects it: an item for each probe and for each claim, from one run."""

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from kvcanary.errors import ConfigError, KvcanaryError
from kvcanary.probing.grammar import Probe, load_probes, load_suite
from kvcanary.pytest_plugin.outcome import Kind, Outcome, of_claim, of_probe
from kvcanary.pytest_plugin.session import Session
from kvcanary.record.run import RunRecord
from kvcanary.report.summary import harmless
from kvcanary.verdict.claims import ClaimName


class Violated(Exception):  # noqa: N818 - a verdict, no error of the program
    """A claim or a probe failed. The message is all that is shown of it."""


class SuiteFile(pytest.File):
    """Collected without a word to anybody; run when the first of its items is."""

    def __init__(self, *, runs: Session, **rest: Any) -> None:
        super().__init__(**rest)
        self.runs = runs
        self.record: RunRecord | None = None
        self.record_path = ""

    def collect(self) -> Iterator[pytest.Item]:
        """Raises CollectError with file, line and column of what is wrong."""
        named = os.path.relpath(self.path)  # as a person at this terminal would write it
        try:
            suite = load_suite(named)
            probes = load_probes(suite.probes)
        except ConfigError as error:
            raise self.CollectError(str(error)) from None
        for reference, probe in zip(suite.probes, probes, strict=True):
            yield ProbeItem.from_parent(
                self, name=f"probe[{probe.id}]", probe=probe, reference=reference
            )
        for claim in ClaimName:
            yield ClaimItem.from_parent(self, name=f"claim[{claim}]", claim=claim)

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        style: Any = None,  # noqa: ARG002 - a node's, not a collector's
    ) -> Any:
        """What is wrong with the file; nothing of how that was found."""
        if isinstance(excinfo.value, self.CollectError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def setup(self) -> None:
        """One run for all of its items, in whichever worker."""
        probes = self._probes()
        name = blake2b(f"{self.nodeid}\0{probes}".encode(), digest_size=4).hexdigest()
        words = ["--suite", str(self.path)]
        for reference in probes:
            words += ["--probe", reference]
        try:
            ran = self.runs.run_once(name, words)
        except KvcanaryError as error:
            pytest.fail(f"kvcanary could not run: {error}", pytrace=False)
        if ran.record is None:
            pytest.fail(f"kvcanary could not run: {ran.error}", pytrace=False)
        self.record, self.record_path = _judged(ran.record), str(ran.record)

    def _probes(self) -> Sequence[str]:
        """The probes to run instead of the suite's own; none: all, since a claim rests on all of them."""
        chosen = [item for item in self.session.items if item.parent is self]
        probes = [item for item in chosen if isinstance(item, ProbeItem)]
        return () if len(probes) < len(chosen) else [item.reference for item in probes]


def _judged(path: Path) -> RunRecord:
    from kvcanary.record.journal import load

    return harmless(load(path))


class _Item(pytest.Item):
    """One thing that the run says something of."""

    parent: SuiteFile

    def outcome(self, record: RunRecord, path: str) -> Outcome:
        """What it says."""
        raise NotImplementedError

    def _found(self) -> Outcome:
        record, path = self.parent.record, self.parent.record_path
        assert record is not None  # noqa: S101 - the file's setup failed otherwise
        return self.outcome(record, path)

    def setup(self) -> None:
        """What could not be measured is an error, as in JUnit, and no failure."""
        record = self.parent.record
        assert record is not None  # noqa: S101 - as above
        assert record.verdict is not None  # noqa: S101 - as above
        self.user_properties += [
            ("kvcanary_headline", record.verdict.headline),
            ("kvcanary_record", self.parent.record_path),
        ]
        found = self._found()
        if found.kind is Kind.INCONCLUSIVE and not self.parent.runs.lenient:
            pytest.fail(found.text, pytrace=False)

    def runtest(self) -> None:
        found = self._found()
        if found.kind is Kind.SKIPPED:
            pytest.skip(found.text)
        if found.kind is Kind.INCONCLUSIVE:
            pytest.xfail(found.text)
        if found.kind is not Kind.PASSED:  # with --runxfail nothing is expected to fail
            raise Violated(found.text)
        self.add_report_section("call", "kvcanary", found.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Violated):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class ProbeItem(_Item):
    """A probe of the suite: fails with the findings in its exchanges."""

    def __init__(self, *, probe: Probe, reference: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.probe = probe
        self.reference = reference
        """As the command line names it."""

    def outcome(self, record: RunRecord, path: str) -> Outcome:
        return of_probe(record, self.probe, path)


class ClaimItem(_Item):
    """A claim of the run: as in its verdict."""

    def __init__(self, *, claim: ClaimName, **rest: Any) -> None:
        super().__init__(**rest)
        self.claim = claim

    def outcome(self, record: RunRecord, path: str) -> Outcome:
        return of_claim(record, self.claim, path)
