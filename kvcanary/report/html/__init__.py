"""The HTML report: one file that needs no network and no script, made from a record."""

from kvcanary.report.html.document import render

__all__ = ["render"]
