"""The HTML report: one file that needs no network and no script, made from a record."""
