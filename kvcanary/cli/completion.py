"""``kvcanary completion``: the script that lets a shell complete commands, options and names."""

import click

SHELLS = ("bash", "zsh", "fish")
COMPLETE_VARIABLE = "_KVCANARY_COMPLETE"


@click.command(short_help="Lets your shell complete what you type.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script for SHELL.

    \b
    bash:  kvcanary completion bash > ~/.local/share/bash-completion/completions/kvcanary
    zsh:   kvcanary completion zsh > "${fpath[1]}/_kvcanary"
    fish:  kvcanary completion fish > ~/.config/fish/completions/kvcanary.fish
    """
    from click.shell_completion import get_completion_class

    from kvcanary.cli import cli

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has these shells
    click.echo(made(cli, {}, "kvcanary", COMPLETE_VARIABLE).source())
    return 0
