"""What can keep kvcanary from running.

    KvcanaryError
    ├── UsageError            the command line or an argument is wrong
    ├── ConfigError           a file that was given is wrong or unreadable
    ├── Unreachable           no connection: unknown host, refused, TLS, timed out
    ├── Unauthorized          401 or 403
    ├── UnknownModel          the server knows no such model
    └── NotAnLLMServer        something answers, and it is no OpenAI-compatible endpoint

Each message says what was tried, what came back and what to do. None holds a secret or text
that a server sent: an error body is other people's data.
"""


class KvcanaryError(Exception):
    """The run could not take place. The message is for the person at the terminal."""


class UsageError(KvcanaryError):
    """An argument is wrong: nothing was sent."""


class ConfigError(KvcanaryError):
    """A file that was given is missing, unreadable or says something impossible."""


class Unreachable(KvcanaryError):  # noqa: N818 - the word the design uses
    """No connection to the deployment could be made."""


class Unauthorized(KvcanaryError):  # noqa: N818 - HTTP's own word
    """The deployment refused the credentials (401 or 403)."""


class UnknownModel(KvcanaryError):  # noqa: N818 - the word the design uses
    """The deployment answers, and serves no model of this name."""


class NotAnLLMServer(KvcanaryError):  # noqa: N818 - says what is wrong
    """Something answers, but not as an OpenAI-compatible endpoint does."""
