"""The build: the same bytes each time, what is committed is what is built, and lessons that break a rule are told."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import traceback

import nbformat
import pytest

from autograder import build, lessons
from autograder.exercise import find, lesson_exercises
from autograder.lessons import ROOT, LessonError
from rankzero.ranks.pickling import dumps

LESSON = "00_start_here"
TINY = """\
# %% [markdown]
# # Start here
# {{badges}}

# %% setup

# %%
import math

# %% solution my_share
# exercise: my_share
def my_share(n_items: int, rank: int, world_size: int) -> range:
    \"\"\"The items of a rank.\"\"\"
    ### BEGIN SOLUTION
    size, rest = divmod(n_items, world_size)
    start = rank * size + min(rank, rest)
    return range(start, start + size + math.floor(rank < rest))
    ### END SOLUTION

# %% tests my_share
check("my_share", my_share)

# %% measure
# %%ranks 3
rank

# %% measure
# %%ranks 3
rank

# %% predict
my_guess = None

# %% quiz
quiz("quiz_00")

# %% solution quiz_00
# exercise: quiz_00
### BEGIN SOLUTION
answers = {"q1": "c", "q2": "b", "q3": "d"}
### END SOLUTION

# %% tests quiz_00
check("quiz_00", answers)

# %% words words_00 2
# Why do ranks wait for one another?
#
# ### BEGIN SOLUTION
# Because a collective needs all of them.
# ### END SOLUTION
"""


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A function that makes a course of one lesson with two of its exercises, and returns its root."""
    two = [exercise for exercise in lesson_exercises(LESSON) if exercise.id in ("my_share", "quiz_00")]
    monkeypatch.setattr("autograder.lesson_rules.exercises.all_exercises", lambda: two)

    def make(text=TINY, name=LESSON):
        (tmp_path / "lessons").mkdir(exist_ok=True)
        (tmp_path / "lessons" / f"{name}.py").write_text(text)
        (tmp_path / "lessons" / "course.toml").write_text('repository = "an-owner/a-course"\nbranch = "spring"\n')
        return tmp_path

    return make


def cells_of(files, room):
    notebook = nbformat.reads(files[build.built_path(room, LESSON)].decode(), as_version=4)
    return {cell.id: cell for cell in notebook.cells}


def test_what_is_committed_is_what_is_built():
    assert build.differences(build.build()) == [], "run `make build` and commit what it writes"


def test_each_build_gives_the_same_bytes_whatever_the_hash_seed():
    source = (
        "import hashlib; from autograder import build\n"
        "print({name: hashlib.sha256(data).hexdigest() for name, data in build.build().items()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = {name: hashlib.sha256(data).hexdigest() for name, data in build.build().items()}
    assert done.stdout.strip() == str(here)


def test_stock_generate_assignment_releases_the_same_bytes(tmp_path):
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "solutions", tmp_path / "solutions", ignore=shutil.ignore_patterns(".*"))
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", LESSON],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    released = build.built_path("notebooks", LESSON)
    assert (tmp_path / released).read_bytes() == (ROOT / released).read_bytes()


def test_cells_get_what_nbgrader_needs(course):
    files = build.build(course())
    solved, released = cells_of(files, "solutions"), cells_of(files, "notebooks")
    assert solved["my_share"].metadata.nbgrader == {
        "grade": False,
        "grade_id": "my_share",
        "locked": False,
        "schema_version": 3,
        "solution": True,
        "task": False,
    }
    test = solved["test_my_share"]
    assert test.source == (
        'check("my_share", my_share)\n### BEGIN HIDDEN TESTS\nfrom autograder import grade\n'
        'grade("my_share", my_share)\n### END HIDDEN TESTS'
    )
    assert (test.metadata.nbgrader.grade, test.metadata.nbgrader.locked) == (True, True)
    assert test.metadata.nbgrader.points == find("my_share").points
    assert released["test_my_share"].source == 'check("my_share", my_share)'
    assert released["my_share"].source == (
        "# exercise: my_share\ndef my_share(n_items: int, rank: int, world_size: int) -> range:\n"
        '    """The items of a rank."""\n    raise NotImplementedError("write your answer here")'
    )
    words = released["words_00"]
    assert words.cell_type == "markdown"
    assert words.source == "Why do ranks wait for one another?\n\n*Write your answer here.*"
    assert (words.metadata.nbgrader.grade, words.metadata.nbgrader.points) == (True, 2)
    tags = [tag for cell in released.values() for tag in cell.metadata.get("tags", [])]
    assert tags == ["setup", "measure", "measure", "predict"]


def test_links_and_setup_name_the_repository(course):
    cells = list(cells_of(build.build(course()), "notebooks").values())
    first, setup = cells[0].source, cells[1].source
    notebook = "an-owner/a-course/blob/spring/notebooks/00_start_here/00_start_here.ipynb"
    assert f"https://colab.research.google.com/github/{notebook}" in first
    assert "make lab" in first
    assert "{{" not in first
    assert '"rankzero @ git+https://github.com/an-owner/a-course@spring"' in setup
    assert setup.endswith("from autograder import check, progress, quiz\n\n%load_ext rankzero")


def test_notebooks_carry_no_more_metadata_than_needed(course):
    for data in build.build(course()).values():
        notebook = json.loads(data)
        assert notebook["metadata"] == {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        for cell in notebook["cells"]:
            assert set(cell["metadata"]) <= {"nbgrader", "tags", "deletable", "editable"}
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None


def test_ids_are_unique_and_a_new_cell_changes_no_other(course):
    before = list(cells_of(build.build(course()), "solutions"))
    more = TINY.replace("# %% measure", "# %% [markdown]\n# A new thought.\n\n# %% measure", 1)
    after = list(cells_of(build.build(course(more)), "solutions"))
    assert len(set(after)) == len(after) == len(before) + 1
    assert [name for name in after if name in before] == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "# exercise: my_share\n",
            "",
            "line 11: The first line of the cell of my_share must be `# exercise: my_share`.",
        ),
        ("    ### END SOLUTION\n", "", "each `### BEGIN SOLUTION` needs one `### END SOLUTION` after it."),
        (
            "    ### BEGIN SOLUTION\n    size",
            "    size",
            "each `### BEGIN SOLUTION` needs one `### END SOLUTION` after it.",
        ),
        ("import math", "### BEGIN SOLUTION\nimport math", "stands in a cell that is not marked `solution ID`"),
        ('# %% tests my_share\ncheck("my_share", my_share)\n', "", "There is no cell marked `tests my_share`."),
        (
            "# %% solution my_share\n# exercise: my_share",
            "# %% solution my_shar\n# exercise: my_shar",
            "There is no exercise 'my_shar'; did you mean 'my_share'?",
        ),
        ("# %% solution my_share", "# %%", "There is no cell marked `solution my_share`."),
        (
            'check("my_share", my_share)',
            'check("my_share", 3)',
            'must hold `check("my_share", my_share)` and no other code.',
        ),
        ("# %% predict", "# %% perdict", "`perdict` is no cell mark; the marks are setup, solution"),
        ("# %% words words_00 2", "# %% words words_00", "The mark must read `# %% words ID POINTS`"),
        ("# %% words words_00 2", "# %% words words_00 two", "The points of words_00 must be a number, not 'two'."),
        ("# %% setup\n", "# %% setup\nimport rankzero\n", "The cell marked `setup` must be empty"),
        ("# %% setup\n", "", "Exactly one cell must be marked `setup`"),
        ("    return range(start", "    return rang(e(start", "The cell of my_share is not Python"),
        ('quiz("quiz_00")', "pass", 'holds one line such as `quiz("quiz_00")`.'),
        (
            "# %% predict",
            '# %% tests my_share\ncheck("my_share", my_share)\n\n# %% predict',
            "2 cells are marked `tests my_share`.",
        ),
        ("# %% [markdown]\n# # Start here", "import os\n\n# %% [markdown]\n# # Start here", "Every cell begins with"),
    ],
)
def test_a_lesson_that_breaks_a_rule_is_told_in_a_sentence(course, old, new, sentence):
    assert old in TINY
    with pytest.raises(LessonError) as caught:
        build.build(course(TINY.replace(old, new, 1)))
    assert sentence in str(caught.value)
    assert all(line.startswith("lessons/00_start_here.py") for line in str(caught.value).splitlines())


def test_all_faults_are_told_at_once(course):
    text = TINY.replace("# exercise: my_share\n", "").replace("# exercise: quiz_00\n", "")
    with pytest.raises(LessonError) as caught:
        build.build(course(text))
    assert len(str(caught.value).splitlines()) == 2


def test_writing_removes_what_is_gone_and_touches_nothing_else(course, capsys):
    root = course()
    kept = [root / "work" / LESSON / "mine.ipynb", root / "notebooks" / ".rankzero-progress.json"]
    gone = [root / "notebooks" / "03_gone" / "03_gone.ipynb", root / "solutions" / LESSON / "notes.py"]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert build.main(["--check"], root) == 1
    assert "notebooks/03_gone/03_gone.ipynb is not what `make build` makes" in capsys.readouterr().out
    assert all(path.exists() for path in (*kept, *gone))
    assert build.main([], root) == 0
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone)
    assert not gone[0].parent.exists()
    assert build.main(["--check"], root) == 0
    (root / build.built_path("notebooks", LESSON)).write_text("{}")
    assert build.main(["--check"], root) == 1


def test_a_broken_lesson_changes_no_notebook(course, capsys):
    root = course()
    assert build.main([], root) == 0
    before = (root / build.built_path("solutions", LESSON)).read_bytes()
    course(TINY.replace("# %% predict", "# %% perdict"))
    assert build.main([], root) == 1
    assert "`perdict` is no cell mark" in capsys.readouterr().err
    assert (root / build.built_path("solutions", LESSON)).read_bytes() == before


def test_the_reference_is_what_the_solution_cells_define(course):
    root = course()
    names = lessons.reference(LESSON, root)
    assert names["my_share"](11, 3, 4) == range(9, 11)
    assert names["answers"] == {"q1": "c", "q2": "b", "q3": "d"}
    assert "my_guess" not in names
    assert "### " not in lessons.answer_sources(LESSON, root)["my_share"]
    with pytest.raises(LessonError, match="There is no lesson '13_more'; there are: 00_start_here"):
        lessons.reference("13_more", root)


def test_the_reference_travels_by_value(course):
    packed = dumps(lessons.reference(LESSON, course())["my_share"])
    source = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(11, 3, 4))"
    done = subprocess.run([sys.executable, "-c", source], input=packed, capture_output=True, check=True)
    assert done.stdout.strip() == b"range(9, 11)"


def test_errors_in_the_reference_show_the_lessons_line(course):
    root = course(TINY.replace("size, rest = divmod(n_items, world_size)", "size, rest = 1 / 0, 0"))
    try:
        lessons.reference(LESSON, root)["my_share"](3, 0, 1)
    except ZeroDivisionError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
    text = textwrap.dedent((root / "lessons" / f"{LESSON}.py").read_text()).splitlines()
    assert frame.filename.endswith("00_start_here.py")
    assert text[frame.lineno - 1].strip() == "size, rest = 1 / 0, 0"
