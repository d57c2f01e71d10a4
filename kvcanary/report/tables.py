"""Tables for terminals: no lines, figures to the right, names and figures never wrapped."""

from rich.table import Table


def table(*columns: str) -> Table:
    """The first column names the row; columns that begin with ``>`` are figures. Only text wraps."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        figure = column.startswith(">")
        name = ("  " if number == 0 else "") + column.removeprefix(">")
        made.add_column(name, justify="right" if figure else "left", no_wrap=figure or number == 0)
    return made
