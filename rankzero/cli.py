"""The ``rankzero`` command: its own subcommands, and those that other packages register."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

from rankzero import __version__

#: A subcommand is a class with ``add_arguments(parser)`` and ``run(args) -> exit status``; its docstring is the help.
_OWN = [
    EntryPoint("doctor", "rankzero.machine:Doctor", "rankzero.commands"),
    EntryPoint("vram", "rankzero.vram.command:Vram", "rankzero.commands"),
]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the options as JSON where the caller asked for JSON."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            print(json.dumps({"error": message}))
            sys.exit(2)
        super().error(message)


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns its exit status, 2 for bad options."""
    _Parser.as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(prog="rankzero", description="Real ranks, and what a training run needs to know.")
    parser.add_argument("--version", action="version", version=f"rankzero {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for entry in [*_OWN, *sorted(entry_points(group="rankzero.commands"), key=lambda entry: entry.name)]:
        command = entry.load()
        described = commands.add_parser(entry.name, help=command.__doc__, description=command.__doc__)
        command.add_arguments(described)
        described.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    return options.run(options)


def entry() -> None:
    """Entry of the console script: an interrupt ends it quietly."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    entry()
