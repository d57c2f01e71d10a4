"""What a simulated leak brought out of the model."""

from kvcanary.record.base import Recorded
from kvcanary.record.exchange import Form


class Simulation(Recorded):
    """One honest request made of page-sized pieces of somebody else's text."""

    number: int
    with_question: bool
    answered: bool
    surfaced: tuple[Form, ...]
    prompt_tokens: int = 0
    """As the server counted it, else as estimated: its price."""

    @property
    def recognised(self) -> bool:
        """A leak like this one would have been called one by this answer alone."""
        return any(form is not Form.WORD for form in self.surfaced)
