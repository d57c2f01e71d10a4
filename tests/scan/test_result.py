"""What a sighting is worth, and the exit code that follows."""

import pytest

from kvcanary.canary.codes import CodeId, written
from kvcanary.canary.run_number import CHANCE_BITS, EPOCH
from kvcanary.scan.result import FileScanned, ScanResult, Status, judged
from kvcanary.scan.sighting import Kind, Sighting
from kvcanary.scan.tally import Counts, Tally
from kvcanary.verdict.claims import ExitCode
from tests.scan.stored import CODES, RUN, STRANGE

NOW = EPOCH.timestamp() + 60 * ((RUN >> CHANCE_BITS) + 1_000)
READ = (FileScanned(name="log", text_bytes=1),)
BROKEN = (FileScanned(name="log", error="gone"),)


def whole(
    position: int = 0, *, run: int = RUN, altered: bool = False, parsed: bool = True
) -> Sighting:
    return Sighting(
        file="log",
        offset=position,
        kind=Kind.WHOLE,
        marker=written(CODES.make(CodeId(run, 7, position))),
        characters=16,
        altered=altered,
        run=run,
        request=7,
        position=position,
        parsed=parsed,
    )


def part(characters: int) -> Sighting:
    return whole().model_copy(update={"kind": Kind.PART, "characters": characters})


UNVERIFIED = Sighting(
    file="log", offset=0, kind=Kind.UNVERIFIED, marker=STRANGE, characters=16, altered=False
)


def of(
    *sightings: Sighting,
    files: tuple[FileScanned, ...] = READ,
    stopped: str | None = None,
    **counts: int,
) -> ScanResult:
    tally = Tally(sightings, Counts(**counts))
    return judged(tally, files, now=NOW, site_key="k", planted_codes=1_000, stopped=stopped)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (of(), ExitCode.PASS),
        (of(UNVERIFIED), ExitCode.PASS),
        (of(whole()), ExitCode.VIOLATION),
        (of(whole(), files=BROKEN), ExitCode.VIOLATION),
        (of(files=BROKEN), ExitCode.COULD_NOT_RUN),
        (of(files=()), ExitCode.COULD_NOT_RUN),
        (of(whole(parsed=False)), ExitCode.INCONCLUSIVE),
        (of(whole(parsed=False), files=BROKEN), ExitCode.COULD_NOT_RUN),
        (of(whole(), stopped="interrupted"), ExitCode.INTERRUPTED),
    ],
    ids=[
        "nothing",
        "another key's",
        "found",
        "found, and something not read",
        "something not read",
        "no file",
        "in a record that could not be read",
        "undecided, and something not read",
        "interrupted",
    ],
)
def test_the_exit_code(result: ScanResult, code: ExitCode) -> None:
    assert result.exit_code is code


def test_one_whole_code_among_so_many_tries_may_be_chance_and_several_are_not() -> None:
    tests = 100_000
    (alone,) = of(whole(altered=True), altered_tests=tests).hits
    assert alone.status is Status.UNDECIDED
    several = of(whole(0, altered=True), whole(1, altered=True), altered_tests=tests).hits
    assert {hit.status for hit in several} == {Status.FOUND}
    (twice,) = {h.status for h in of(*[whole(altered=True)] * 2, altered_tests=tests).hits}
    assert twice is Status.UNDECIDED, "the same code logged twice is one piece of evidence"


def test_what_base64_is_full_of_takes_nothing_from_a_code_as_it_was_written() -> None:
    (hit,) = of(whole(), altered_tests=10**6, intact_tests=1).hits
    assert hit.status is Status.FOUND


def test_a_code_of_a_run_that_has_not_begun_is_no_proof() -> None:
    later = RUN + (5_000 << CHANCE_BITS)
    (hit,) = of(whole(run=later)).hits
    assert hit.status is Status.UNDECIDED


def test_a_part_is_weighed_by_how_much_text_was_searched() -> None:
    (little,) = of(part(12), windows=1_000).hits
    assert little.status is Status.FOUND
    much = of(part(9), windows=10**9)
    assert (much.hits, much.by_chance, much.exit_code) == ((), 1, ExitCode.PASS)
    (between,) = of(part(10), windows=100_000).hits
    assert between.status is Status.UNDECIDED


def test_a_record_says_whose_it_was() -> None:
    owners = {(RUN, 7): ("Garden Path Tower", "edge")}
    (hit,) = judged(Tally((whole(),)), READ, now=NOW, site_key="k", owners=owners).hits
    assert (hit.tenant, hit.stratum) == ("Garden Path Tower", "edge")
    assert hit.run_began is not None
