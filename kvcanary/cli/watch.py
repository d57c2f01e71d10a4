"""What ``check`` remembers from run to run, and whom it tells when the outcome has changed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.errors import KvcanaryError

if TYPE_CHECKING:
    from kvcanary.memory import Diary, Memory
    from kvcanary.record.notice import Notice, Outcome
    from kvcanary.record.run import RunRecord

NOTIFY_VARIABLE = "KVCANARY_NOTIFY_URL"
MOST_UNDELIVERED = 10


def _checked(_ctx: click.Context, _param: click.Parameter, url: str | None) -> str | None:
    from kvcanary.report.notify import checked_url

    return checked_url(url) if url else None


def notify_option(command: Callable[..., int]) -> Callable[..., int]:
    """``--notify URL``."""
    return click.option(
        "--notify",
        metavar="URL",
        envvar=NOTIFY_VARIABLE,
        callback=_checked,
        help="Post a redacted JSON to this webhook when the outcome is another than last time, and when a "
        f"first run does not pass. A URL that holds a secret belongs into {NOTIFY_VARIABLE}.",
    )(command)


@dataclass(frozen=True, slots=True)
class Watch:
    """One kind of run: what came before, and who is told."""

    diary: "Diary"
    before: "Memory"
    target: str
    suite: str
    notify: str | None
    trust_env: bool

    def concluded(self, record: "RunRecord", exit_code: int) -> None:
        """Remember a verdict; tell it where it is another one."""
        from kvcanary.memory import outcome_of

        self._told(outcome_of(record), exit_code, record, "")

    def could_not_run(self, why: str, exit_code: int) -> None:
        """The same for a run that did not come to one: its turn comes again."""
        from kvcanary.record.notice import Outcome

        self._told(Outcome.COULD_NOT_RUN, exit_code, None, why)

    def _told(
        self, outcome: "Outcome", exit_code: int, record: "RunRecord | None", why: str
    ) -> None:
        from kvcanary.memory import severe_of

        ended = record is not None and record.stopped is None
        memory = self.before.model_copy(update={"turns": self.before.turns + ended})
        if self.notify:  # without it nobody is told, and the next run with it has news
            severe = severe_of(record) if record else ()
            told = (
                (self._notice(outcome, exit_code, record, why),)
                if self._news(outcome, severe)
                else ()
            )
            left = self._post((*self.before.undelivered, *told)[-MOST_UNDELIVERED:])
            memory = memory.model_copy(
                update={"told": outcome, "severe": severe, "undelivered": left}
            )
        try:
            self.diary.write(memory)
        except KvcanaryError as error:
            click.echo(f"What the next run should know was not kept: {error}", err=True)

    def _news(self, outcome: "Outcome", severe: tuple[str, ...]) -> bool:
        """Another outcome, or a leak or corruption that was not told before."""
        from kvcanary.record.notice import Outcome

        before = self.before
        if before.told is None:
            return outcome is not Outcome.PASS
        return outcome is not before.told or bool(set(severe) - set(before.severe))

    def _notice(
        self, outcome: "Outcome", exit_code: int, record: "RunRecord | None", why: str
    ) -> "Notice":
        from kvcanary.report.notify import notice

        return notice(
            outcome,
            self.before.told,
            exit_code,
            record,
            target=self.target,
            suite=self.suite,
            why=why,
            now=time.time(),
        )

    def _post(self, notices: "tuple[Notice, ...]") -> "tuple[Notice, ...]":
        """Post them, oldest first; what is left of them."""
        from kvcanary.report.notify import post

        for number, told in enumerate(notices):
            try:
                failure = post(self.notify or "", told, trust_env=self.trust_env)
            except KeyboardInterrupt:
                failure = "it was interrupted"
            if failure:
                click.echo(
                    f"The notice was not delivered: {failure}. The next run tries again.", err=True
                )
                return notices[number:]
        return ()


def watch(
    target: str, suite: str, what: tuple[str, ...], notify: str | None, *, trust_env: bool
) -> Watch:
    """``what`` makes runs of one suite on one target different kinds."""
    from kvcanary.memory import Diary
    from kvcanary.places import state_folder

    place = str(Path(target).resolve()) if Path(target).is_file() else target
    diary = Diary(state_folder(), place, suite, *what)
    return Watch(diary, diary.read(), target, suite, notify, trust_env)
