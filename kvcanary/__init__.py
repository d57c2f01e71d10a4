"""kvcanary: does every request attend to its own KV pages, all of them and no others?"""

__version__ = "0.1.0"
