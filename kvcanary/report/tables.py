"""Tables for terminals: no lines, figures to the right, names and figures never wrapped."""

from rich.console import Console
from rich.table import Table

LEAST_WIDTH = 80
"""Tables are laid out for at least so many columns: a narrower terminal wraps them and cuts no figure."""


def table(*columns: str) -> Table:
    """The first column names the row; columns that begin with ``>`` are figures. Only text wraps."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        figure = column.startswith(">")
        name = ("  " if number == 0 else "") + column.removeprefix(">")
        whole = figure or number == 0
        made.add_column(name, justify="right" if figure else "left", no_wrap=whole, overflow="fold")
    return made


def print_table(console: Console, rows: Table) -> None:
    """Write a table. Cells are text: brackets in them (``http://[::1]:30000``) are no markup."""
    width = console.width
    console.width = max(width, LEAST_WIDTH)
    console.print(rows, highlight=False, markup=False)
    console.width = width
