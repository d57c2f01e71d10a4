"""Standard output for people."""

from rich.console import Console


class Output(Console):
    """A console whose reader may go away (``| head``): BrokenPipeError, where rich itself would exit 1, as
    if a claim had failed."""

    def on_broken_pipe(self) -> None:
        """Said to whoever prints; the command line ends quietly."""
        raise BrokenPipeError
