"""``%%ranks`` in a real kernel."""

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = {
    "load": "%load_ext rankzero\nfactor = 3\ndef double(x):\n    return 2 * x",
    "uses the notebook's names": "%%ranks 3\nx = torch.full((2,), float(rank)) * factor\ndouble(x)",
    "keeps what it assigned": "%%ranks\ndist.all_reduce(x)\nx.tolist()",
    "semicolon": "%%ranks\nx;",
    "the ranks' own name wins": "%%ranks\nfactor = 100 + rank\nfactor",
    "and stays": "%%ranks\nfactor",
    "raises": "%%ranks\nif rank == 1:\n    raise ValueError('on purpose')",
    "syntax": "%%ranks\nif rank ==\n",
    "hangs": "%%ranks --timeout 10\nif rank == 0:\n    dist.barrier()",
    "after a hang": "%%ranks\nworld_size",
    "another number": "%%ranks 2\nworld_size",
    "too many": "%%ranks 1000\n1",
    "bad option": "%%ranks 2 --what\n1",
    "cannot travel": "import threading\nlock = threading.Lock()",
    "uses what cannot travel": "%%ranks\nlock",
    "run shows the cell": "import rankzero\nimport torch.distributed as dist\n"
    "def body():\n    if dist.get_rank() == 1:\n        1 / 0\nrankzero.run(body, ranks=2)",
}


@pytest.fixture(scope="module")
def shown():
    """What each cell showed: its stream output, or its error as (name, value, traceback)."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    NotebookClient(notebook, timeout=60, allow_errors=True, kernel_name="python3").execute()
    results = {}
    for name, cell in zip(CELLS, notebook.cells, strict=True):
        text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        errors = [output for output in cell.outputs if output.output_type == "error"]
        results[name] = (text, errors[0] if errors else None)
    return results


def test_cells_run_on_every_rank_with_the_notebooks_names(shown):
    assert shown["uses the notebook's names"][0].splitlines() == [
        "rank 0 │ tensor([0., 0.])",
        "rank 1 │ tensor([6., 6.])",
        "rank 2 │ tensor([12., 12.])",
    ]


def test_what_a_cell_assigns_stays_on_the_ranks(shown):
    assert shown["keeps what it assigned"][0].count("[9.0, 9.0]") == 3
    assert shown["semicolon"][0] == ""
    assert "rank 2 │ 102" in shown["the ranks' own name wins"][0]
    assert "rank 2 │ 102" in shown["and stays"][0]


def test_errors_show_the_cells_line_and_nothing_of_ours(shown):
    error = shown["raises"][1]
    assert error.ename == "RankError"
    assert "raise ValueError('on purpose')" in error.evalue
    for name in ("raises", "hangs", "run shows the cell"):
        assert "/rankzero/" not in "\n".join(shown[name][1].traceback)


def test_a_cell_of_the_notebook_is_called_by_its_number(shown):
    assert f"In[{list(CELLS).index('run shows the cell') + 1}], line 5: 1 / 0" in shown["run shows the cell"][1].evalue


def test_after_a_hang_the_ranks_are_fresh_and_it_is_said(shown):
    assert shown["hangs"][1].ename == "HangError"
    text, error = shown["after a hang"]
    assert error is None
    assert "fresh ranks" in text
    assert text.count("│ 3") == 3


def test_another_number_of_ranks(shown):
    assert shown["another number"][0].count("│ 2") == 2
    assert shown["too many"][1].ename == "ValueError"


@pytest.mark.parametrize(("cell", "words"), [("syntax", "SyntaxError"), ("uses what cannot travel", "cannot be sent")])
def test_cells_that_cannot_run_get_a_sentence(shown, cell, words):
    error = shown[cell][1]
    assert words in f"{error.ename}: {error.evalue}"


def test_a_bad_option_shows_how_to_write_it(shown):
    text, error = shown["bad option"]
    assert "%%ranks [N] [--timeout SECONDS]" in text + (error.evalue if error else "")
