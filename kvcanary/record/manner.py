"""How a request is sent, where that is not as usual: as whom, with which feature, what in it is wrong."""

from enum import StrEnum

from kvcanary.record.base import Recorded


class Feature(StrEnum):
    """What a request asks for besides text."""

    PLAIN = "plain"
    WHOLE = "whole"
    LOGPROBS = "logprobs"
    JSON = "json"
    TOOLS = "tools"
    THINKING = "thinking"

    @property
    def keeps_the_answer(self) -> bool:
        """Whether the answer still begins with the label: only then does it show whose pages were read."""
        return self in (Feature.PLAIN, Feature.WHOLE, Feature.LOGPROBS)


class Spoilt(StrEnum):
    """What is wrong with a request that any correct server refuses."""

    OUTPUT = "output"
    TEMPERATURE = "temperature"
    LOGPROBS = "logprobs"
    SCHEMA = "schema"
    REGEX = "regex"
    MODEL = "model"

    @property
    def meaning(self) -> str:
        """What is wrong, in a line."""
        return _MEANINGS[self]


_MEANINGS = {
    Spoilt.OUTPUT: "`max_tokens` is a word",
    Spoilt.TEMPERATURE: "`temperature` is negative",
    Spoilt.LOGPROBS: "more runners-up of each token than any API gives",
    Spoilt.SCHEMA: "a JSON Schema of a type that there is none of",
    Spoilt.REGEX: "a regular expression that does not compile",
    Spoilt.MODEL: "an adapter that nobody serves",
}


class Manner(Recorded):
    """All false: as usual."""

    begun: bool = False
    """The prompt ends with the label's prefix, so that the very first token is one of the label's own."""
    recite: bool = False
    """What follows the label is asked for, too: a long answer of which every word is known."""
    sent_as: int | None = None
    """The tenant that it is sent as, where that is not the one whose text it is."""
    salted: bool = False
    """Each tenant has a ``cache_salt`` of its own, where the deployment file gives it none."""
    feature: Feature = Feature.PLAIN
    spoilt: Spoilt | None = None
    full_output: bool = False
    """All of the output is asked for (``ignore_eos``)."""
    crowded: bool = False
    """Sent beside others of its stratum on purpose: which workers served it cannot be told apart."""
    adapter: bool = False
    """Sent to the first adapter of the model instead of the model itself."""
    one_name: bool = False
    """All requests of the stratum have one and the same ``X-Request-Id``."""

    @property
    def optional(self) -> bool:
        """Whether it uses what a server need not have, and may refuse."""
        return (
            self.salted
            or self.full_output
            or self.feature not in (Feature.PLAIN, Feature.WHOLE)
            or self.one_name
        )


USUAL = Manner()
