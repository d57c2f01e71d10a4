"""Tables for terminals: no lines, figures to the right, names and figures never wrapped."""

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

LEAST_WIDTH = 80
"""Tables are laid out for at least so many columns: a narrower terminal wraps them and cuts no figure."""
LEAST_TEXT = 40
"""Columns that text has before it is wrapped, whatever stands beside it."""
LONGEST_NAME = 90
"""Columns of the longest name that is never wrapped: a stratum with its probe's name."""
_GAP = 2


def table(*columns: str) -> Table:
    """The first column names the row; columns that begin with ``>`` are figures. Only text wraps."""
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        figure = column.startswith(">")
        name = ("  " if number == 0 else "") + column.removeprefix(">")
        made.add_column(
            name,
            justify="right" if figure else "left",
            no_wrap=figure or number == 0,
            max_width=LONGEST_NAME if number == 0 else None,
            overflow="fold",
        )
    return made


def print_table(console: Console, rows: Table) -> None:
    """Write a table. Cells are text: brackets in them (``http://[::1]:30000``) are no markup."""
    width = console.width
    console.width = max(width, LEAST_WIDTH, _needed(rows))
    console.print(rows, highlight=False, markup=False)
    console.width = width


def _needed(rows: Table) -> int:
    """Columns that the table takes: rich would cut figures to have it narrower."""
    needed = 0
    for column in rows.columns:
        widest = max(cell_len(str(text)) for text in (column.header, *column.cells))
        most = (column.max_width or widest) if column.no_wrap else LEAST_TEXT
        needed += _GAP + min(widest, most)
    return needed
