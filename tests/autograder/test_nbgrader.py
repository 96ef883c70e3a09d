"""From a hand-in to a graded page through stock nbgrader commands: each score, and what the student reads."""

import json
import os
import re
import stat
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest

from autograder.exercise import find
from autograder.lessons import answer_sources
from autograder.preprocessors import _points
from autograder.seeds import FILE_NAME, SEED_VARIABLE, instructor_seed
from autograder.submissions import Classroom, fill
from autograder.verdict import Verdict

LESSON, RINGS = "00_start_here", "04_collectives"
IMPORTS = "import torch\nimport torch.distributed as dist\n"
WRONG_SHARE = "def my_share(n_items, rank, world_size):\n    return range(0)"
# Right but for its precision.
FLOAT32 = f"""{IMPORTS}
def sum_over_ranks(value):
    tensor = torch.tensor(value, dtype=torch.float32)
    dist.all_reduce(tensor)
    return tensor.item()"""
HANGS = f"""{IMPORTS}
def rank_zero_reports(value):
    if dist.get_rank() == 0:
        dist.all_reduce(value)
        return value"""
ONE_RIGHT_OF_THREE = 'answers = {"q1": "c", "q2": "a", "q3": "a"}'
SWALLOWS_INTERRUPTS = """import time
while True:
    try:
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        pass"""
# Claims full points from within the kernel, in every way that nbgrader alone would believe.
FORGES = """
import autograder, autograder.checking
from IPython.core.displayhook import DisplayHook
autograder.grade = autograder.checking.grade = lambda *arguments: 3.0
shell = get_ipython()
kernel = shell.kernel
kernel.session.send(kernel.iopub_socket, "execute_result",
    {"data": {"text/plain": "3.0"}, "metadata": {}, "execution_count": 1}, parent=kernel.get_parent("shell"))
"""
NOISY = """
import sys
import threading, time
print("a warning", file=sys.stderr)
def noise():
    for _ in range(200):
        print("still here", file=sys.stderr, flush=True)
        time.sleep(0.05)
threading.Thread(target=noise, daemon=True).start()
print("the seed:", __import__("os").environ.get("AUTOGRADER_SEED"))
print("x" * 3_000_000)
"""


def add_code(notebook, source, before="test_my_share"):
    """Insert an ordinary cell before a cell, or after all if ``before`` is empty."""
    names = [cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in notebook.cells]
    place = names.index(before) if before else len(names)
    notebook.cells.insert(place, nbformat.v4.new_code_cell(source))
    return notebook


def without_setup(notebook):
    notebook.cells = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") != "setup"]
    return notebook


def skip_tests(notebook):
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata["tags"] = ["skip-execution", "raises-exception", "measure"]
    return notebook


pytestmark = [pytest.mark.xdist_group("nbgrader"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A graded class. The students' names say what they did."""
    right = answer_sources(LESSON)
    some = {"my_share": WRONG_SHARE, "sum_over_ranks": FLOAT32, "fix_the_hang": HANGS, "quiz_00": ONE_RIGHT_OF_THREE}
    room = Classroom(tmp_path_factory.mktemp("course"), [LESSON, RINGS])
    given = room.released(LESSON)
    notebooks = {
        "all_right": fill(given, right),
        "some_right": fill(given, some),
        "empty": given,
        "ends_process": fill(given, {**right, "sum_over_ranks": "import os\nos._exit(0)"}),
        "syntax_error": fill(given, {**right, "my_share": "def my_share(:"}),
        "forges": skip_tests(add_code(fill(given, {**right, "my_share": WRONG_SHARE}), FORGES)),
        "noisy": add_code(fill(given, right), NOISY),
        "no_setup": without_setup(fill(given, right)),
    }
    for student, notebook in notebooks.items():
        room.hand_in(student, LESSON, notebook)
    room.nbgrader("autograde", LESSON)
    room.hand_in("stuck", LESSON, add_code(fill(given, right), SWALLOWS_INTERRUPTS, before="test_sum_over_ranks"))
    limits = ("--ExecutePreprocessor.timeout=8", "--ExecutePreprocessor.iopub_timeout=2")
    room.nbgrader("autograde", LESSON, "--student=stuck", *limits)
    room.nbgrader("generate_feedback", LESSON)
    room.hand_in("all_right", RINGS, fill(room.released(RINGS), answer_sources(RINGS)))
    room.nbgrader("autograde", RINGS)
    return room


def points_of(room, student, lesson=LESSON):
    """Points by exercise."""
    scores = room.scores(lesson)[student]
    return {name.removeprefix("test_"): points for name, points in scores.items() if name.startswith("test_")}


FULL = {"my_share": 3.0, "sum_over_ranks": 3.0, "fix_the_hang": 4.0, "quiz_00": 3.0}


@pytest.mark.parametrize(
    ("student", "points"),
    [
        ("all_right", FULL),
        ("some_right", {"my_share": 0.0, "sum_over_ranks": 1.0, "fix_the_hang": 0.0, "quiz_00": 1.0}),
        ("empty", dict.fromkeys(FULL, 0.0)),
        ("ends_process", {**FULL, "sum_over_ranks": 0.0, "fix_the_hang": 0.0, "quiz_00": 0.0}),
        ("syntax_error", {**FULL, "my_share": 0.0}),
        ("stuck", {**FULL, "sum_over_ranks": 0.0, "fix_the_hang": 0.0, "quiz_00": 0.0}),
        ("noisy", FULL),
    ],
)
def test_each_score(room, student, points):
    assert points_of(room, student) == points


def test_no_score_can_be_claimed_from_within_the_notebook(room):
    # It has put its own `grade` in the judge's place, so that even its right answers reach nobody.
    assert points_of(room, "forges") == dict.fromkeys(FULL, 0.0)


def test_the_references_earn_every_point_of_the_hidden_cases(room):
    assert points_of(room, "all_right", RINGS) == {
        name: find(name).points for name in points_of(room, "all_right", RINGS)
    }


def test_own_words_wait_for_a_person(room):
    words = {name: score for name, score in room.scores(LESSON)["empty"].items() if not name.startswith("test_")}
    assert words
    assert set(words.values()) == {0.0}, "what was not answered needs no person"


@pytest.mark.parametrize(
    ("student", "message"),
    [
        ("all_right", "my_share: right, 3 of 3 points"),
        ("some_right", "as in float32"),
        ("some_right", "Deadlock: rank 0 can never go on"),
        ("empty", "NotImplementedError: write your answer here"),
        ("ends_process", "The notebook's process ended while it ran the cell `sum_over_ranks`."),
        ("syntax_error", "the cell of the answer raised SyntaxError"),
        ("stuck", "Nothing could stop the cell that begins with `import time` when its 8 seconds were over."),
        ("no_setup", "running this cell raised NameError: name 'check' is not defined"),
        ("noisy", "more characters were left out"),
    ],
)
def test_the_feedback_says_why(room, student, message):
    html = room.feedback(student, LESSON).read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", html).replace("&#39;", "'").replace("&#x27;", "'")
    assert message in text


def test_the_feedback_keeps_what_is_hidden(room):
    seed = instructor_seed(room.folder)
    hidden = [case for case in find("sum_over_ranks").draw(seed, hidden=True) if case.hidden]
    numbers = {repr(value) for case in hidden for one in case.inputs for value in one["values"]}
    assert numbers
    for page in (room.folder / "feedback").rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert "HIDDEN" not in html
        assert "import grade" not in html
        assert str(seed) not in html
        assert not [number for number in numbers if number in html]
        assert len(html) < 1_500_000


def test_the_kernel_does_not_know_the_seed(room):
    assert "the seed: None" in room.feedback("noisy", LESSON).read_text(encoding="utf-8")


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="it looks into /proc")
def test_grading_leaves_nothing_running(room):
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _folder_of(pid).startswith(str(room.folder))]
    assert left == []


def _folder_of(pid):
    """The folder in which a process runs: a kernel, its children and the judge stay in the course's."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_validate_says_what_is_wrong_and_what_is_right(room, tmp_path):
    given = room.released(LESSON)
    right = fill(given, {**answer_sources(LESSON), **words_of(given)})
    for name, notebook in {"right": right, "wrong": fill(right, {"my_share": WRONG_SHARE})}.items():
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    assert "Success! Your notebook passes all the tests." in room.nbgrader("validate", str(tmp_path / "right.ipynb"))
    printed = room.nbgrader("validate", str(tmp_path / "wrong.ipynb"))
    assert "VALIDATION FAILED ON 1 CELL(S)" in printed
    assert "CheckFailed: my_share: not yet, 0 of 3 points." in printed


@pytest.fixture
def lab(room, tmp_path):
    """A function that asks a JupyterLab server, which was started in the course folder as `make lab` starts one."""
    pytest.importorskip("jupyterlab")
    runtime = tmp_path / "runtime"
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    arguments = ["--no-browser", "--allow-root", "--ServerApp.port=0", f"--ServerApp.root_dir={room.folder}"]
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            cwd=room.folder,
            env={**os.environ, "PATH": path, "JUPYTER_RUNTIME_DIR": str(runtime)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def ask(method, address):
        request = urllib.request.Request(
            f"{where['url']}{address}", method=method, headers={"Authorization": f"token {where['token']}"}
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.loads(reply.read())

    try:
        deadline = time.monotonic() + 60
        while not (files := list(runtime.glob("jpserver-*.json"))):
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        time.sleep(0.2)
        where = json.loads(files[0].read_text())
        yield ask
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.mark.slow
def test_the_buttons_of_jupyterlab_do_the_same(room, lab):
    assignments = {one["name"]: one for one in lab("GET", "formgrader/api/assignments")}
    assert assignments[LESSON]["release_path"] == f"notebooks/{LESSON}"
    done = lab("POST", f"formgrader/api/submission/{LESSON}/some_right/autograde")
    assert done["success"], done
    assert points_of(room, "some_right")["sum_over_ranks"] == 1.0
    answer = lab("POST", f"assignments/validate?path=notebooks/{LESSON}/{LESSON}.ipynb")
    assert answer["success"], answer
    errors = "\n".join(cell["error"] for cell in answer["value"]["failed"])
    assert "CheckFailed: my_share: not yet, 0 of 3 points." in errors


def words_of(notebook):
    """An answer to every question in own words."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown" and "nbgrader" in cell.metadata]
    return {cell.metadata.nbgrader.grade_id: "All of them have to come." for cell in cells}


def test_the_seed_is_made_once_and_kept_from_others(tmp_path, monkeypatch):
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    seed = instructor_seed(tmp_path)
    assert instructor_seed(tmp_path) == seed
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    monkeypatch.setenv(SEED_VARIABLE, "12")
    assert instructor_seed(tmp_path) == 12
    monkeypatch.setenv(SEED_VARIABLE, "twelve")
    with pytest.raises(ValueError, match="AUTOGRADER_SEED must hold a whole number"):
        instructor_seed(tmp_path)


def test_points_are_those_of_the_gradebook():
    verdict = Verdict("an_exercise", False, 2.0, 3.0, [], [])
    assert _points(verdict, 3.0) == 2.0
    assert _points(verdict, 10.0) == pytest.approx(6.6667)
    assert _points(Verdict("an_exercise", True, 3.0, 3.0, [], []), 1.0) == 1.0


def test_filling_an_unknown_exercise_names_those_there_are(room):
    with pytest.raises(KeyError, match="my_share"):
        fill(room.released(LESSON), {"my_shar": ""})
