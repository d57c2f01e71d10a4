"""Where what was run stands in files."""

from kvcanary.record.base import Recorded


class Source(Recorded):
    """A file of the run, and a line in it."""

    path: str
    """Seen from the repository that it lies in, else from where kvcanary ran; of what is shipped, as
    ``probes/NAME.yaml``."""
    line: int = 1
    probe: str | None = None
    """None: it is the suite."""
    group: str | None = None
    """Stratum that the line is about; None: the whole file."""
