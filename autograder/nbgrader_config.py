"""nbgrader's settings for this course; a course folder of your own loads them with ``load_subconfig(PATH)``."""

from autograder.lesson_rules import CODE_STUB, TEXT_STUB

c = get_config()

c.CourseDirectory.course_id = "rank-zero"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
# Never handed out and never taken over: what running a notebook leaves behind.
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints",
    "*.pyc",
    "__pycache__",
    "feedback",
    ".rankzero-progress.*",
    ".autograder-seed",
]

c.ClearSolutions.code_stub = {"python": CODE_STUB}
c.ClearSolutions.text_stub = TEXT_STUB

# JudgedExecute stands where nbgrader's own Execute stood; SaveAutoGrades reads the points it has written.
c.Autograde.autograde_preprocessors = [
    "autograder.preprocessors.JudgedExecute",
    "nbgrader.preprocessors.IgnorePattern",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# The hidden part of a test cell is of no use to a student who reads the feedback.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "nbgrader.preprocessors.ClearHiddenTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]

# These hold for the Validate button as well. Seconds for one cell, and for its outputs to arrive after it.
c.ExecutePreprocessor.timeout = 60
c.ExecutePreprocessor.iopub_timeout = 10
# A notebook that comes from another machine may name a kernel that this one does not have.
c.ExecutePreprocessor.kernel_name = "python3"
c.Validator.width = 160
c.LimitOutput.max_lines = 200
c.LimitOutput.max_traceback = 40
