"""The ``%%ranks`` cell magic: one cell on every rank, with ranks that live on between cells."""

from __future__ import annotations

import argparse
import ast
import builtins
import linecache
import shlex
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class

from rankzero.ranks import warm
from rankzero.ranks.api import Ranks
from rankzero.ranks.pickling import dumps, pickling_error
from rankzero.ranks.source import remember

#: What each rank's cells share; lives in the rank.
_namespace: dict[str, Any] = {}
#: Names that cells assigned on the ranks; these win over the kernel's names.
_own: set[str] = set()


@magics_class
class RanksMagic(Magics):
    """Holds the ranks behind ``%%ranks``."""

    def __init__(self, shell):
        super().__init__(shell)
        self._ranks: Ranks | None = None
        self._cells = 0

    @cell_magic("ranks")
    def ranks(self, line: str, cell: str) -> None:
        """Run the cell on every rank: ``%%ranks [N] [--timeout SECONDS]`` (4 ranks, 30 s).

        ``torch``, ``dist``, ``rank`` and ``world_size`` are there. Names that the cell uses and that only the
        notebook knows travel along. What the cell assigns stays on the ranks for the next such cell, as
        long as N stays the same. The value of the last line is shown for each rank.
        """
        options = _parse(line)
        if self._ranks is None or (options.ranks and options.ranks != self._ranks.ranks):
            self.close()
            self._ranks = Ranks(options.ranks or 4)
        elif self._ranks.fresh:
            print(f"Starting {self._ranks.ranks} fresh ranks: what earlier cells left on the old ones is gone.")
        self._cells += 1
        filename = f"<%%ranks cell {self._cells}>"
        remember({filename: (f"%%ranks cell {self._cells}", cell)})
        self._ranks.run(run_cell, cell, filename, self._names_for(cell, filename), timeout=options.timeout)

    def close(self) -> None:
        """End the ranks."""
        if self._ranks is not None:
            self._ranks.close()

    def _names_for(self, cell: str, filename: str) -> dict[str, bytes]:
        """The notebook's names that the cell uses, pickled one by one; modules travel by their names."""
        tree = ast.parse(cell, filename)
        given = {*dir(builtins), "torch", "dist", "rank", "world_size"}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        space = self.shell.user_ns
        names = {}
        for name in sorted(used - given):
            if name not in space or name in self.shell.user_ns_hidden:
                continue
            try:
                names[name] = dumps(space[name])
            except Exception as error:
                raise pickling_error(name, space[name], error) from None
        return names


def run_cell(cell: str, filename: str, names: dict[str, bytes]) -> None:
    """In a rank: run a cell's text in the namespace that such cells share, and print the last line's value."""
    import pickle

    import torch
    import torch.distributed as dist

    _namespace.setdefault("__name__", "__ranks__")
    always = {"torch": torch, "dist": dist, "rank": dist.get_rank(), "world_size": dist.get_world_size()}
    _namespace.update({name: value for name, value in always.items() if name not in _own})
    for name, pickled in names.items():
        if name not in _own:
            _namespace[name] = pickle.loads(pickled)
    before = {name: id(value) for name, value in _namespace.items()}
    linecache.cache[filename] = (len(cell), None, cell.splitlines(keepends=True), filename)
    tree = ast.parse(cell, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, filename, "exec"), _namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), filename, "eval"), _namespace)
            if value is not None and not cell.rstrip().endswith(";"):
                print(repr(value))
    finally:
        _own.update(name for name, value in _namespace.items() if before.get(name) != id(value))


def _parse(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="%%ranks", add_help=False, exit_on_error=False)
    parser.add_argument("ranks", type=int, nargs="?")
    parser.add_argument("--timeout", type=float, default=30.0)
    try:
        options, rest = parser.parse_known_args(shlex.split(line))
        if rest:
            raise ValueError(f"unknown: {' '.join(rest)}")
        return options
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(f"write it as %%ranks [N] [--timeout SECONDS]; {error}") from None


def load_ipython_extension(shell) -> None:
    """``%load_ext rankzero``: register the magic, and start the warm server so that no cell waits for it."""
    shell.register_magics(RanksMagic(shell))
    warm.warm_up()
