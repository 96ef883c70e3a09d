"""The subcommands that the course adds to ``rankzero``: ``check`` and ``progress``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


class Check:
    """try an answer that is written in a file"""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("exercise", metavar="ID", help="the exercise, such as ring_all_reduce")
        parser.add_argument("file", metavar="FILE", help="a Python file that defines the names it asks for")
        parser.add_argument("--hidden", action="store_true", help="add the hidden cases")
        parser.add_argument("--seed", type=int, default=1, help="the seed of the hidden cases (default: 1)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Exit status: 0 if it passed, 1 if not, 2 if the id or the file cannot be used."""
        from rankzero.ranks import warm

        path = Path(args.file)
        try:
            if not path.is_file():
                raise OSError(f"there is no file {args.file!r}")
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return _refuse(f"{args.file} cannot be read: {error}" if path.is_file() else str(error), args.json)
        warm.warm_up()  # it imports torch while this process does the same
        from autograder.exercise import UnknownExercise, find
        from autograder.judge import Answer, judge

        try:
            exercise = find(args.exercise)
        except UnknownExercise as error:
            return _refuse(str(error), args.json)
        verdict = judge(exercise, Answer.of_source(source, str(path.absolute())), args.hidden, args.seed)
        print(json.dumps(verdict.public_json()) if args.json else verdict.text())
        return 0 if verdict.passed else 1


class Progress:
    """show what has been finished, and what comes next"""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Always 0."""
        from autograder.ledger import progress

        print(json.dumps(progress().as_json()) if args.json else progress())
        return 0


def _refuse(message: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": message}))
    else:
        print(message, file=sys.stderr)
    return 2
