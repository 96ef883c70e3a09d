"""The quiz on the screen: its questions to click through, and the explanations once all is right."""

from __future__ import annotations

import re
from html import escape

from autograder.exercise import Question, Quiz, find


def quiz(quiz_id: str) -> None:
    """Show the questions of a quiz as widgets, and as plain text where widgets are not to be had.

    The letters are typed in the solution cell below, so that they are handed in with the notebook; what is
    clicked here is turned into the line to type.
    """
    questions = find(quiz_id)
    if not isinstance(questions, Quiz):
        raise TypeError(f"{quiz_id!r} is an exercise, not a quiz")
    from IPython.display import display

    try:
        widget = _widget(questions)
    except Exception:  # no ipywidgets, or none that fits the front end
        widget = None
    if widget is not None:
        display(widget)
    else:
        print(_text(questions))


def explain(questions: Quiz) -> None:
    """Say why the right answers are right; shown when they have been given."""
    from IPython.display import display

    parts = "".join(f"<p><b>{escape(one.key)}.</b> {_html(one.why)}</p>" for one in questions.questions)
    plain = "\n".join(f"{one.key}. {one.why}" for one in questions.questions)
    display({"text/html": parts, "text/plain": plain}, raw=True)


def _widget(questions: Quiz):
    import ipywidgets as widgets

    line = widgets.HTML()
    choices = {one.key: _choice(widgets, one) for one in questions.questions}

    def update(_change: object = None) -> None:
        letters = ", ".join(f'"{key}": {choice.value!r}'.replace("'", '"') for key, choice in choices.items())
        line.value = f"To hand in, type below: <code>answers = {{{escape(letters)}}}</code>"

    for choice in choices.values():
        choice.observe(update, "value")
    update()
    rows: list = []
    for one in questions.questions:
        rows += [widgets.HTML(f"<b>{escape(one.key)}.</b> {_html(one.text)}"), choices[one.key]]
    return widgets.VBox([*rows, line])


def _choice(widgets, question: Question):
    options = [(f"{letter}  {text.replace('`', '')}", letter) for letter, text in question.options.items()]
    layout = widgets.Layout(width="100%")
    return widgets.RadioButtons(options=options, value=None, layout=layout)


def _html(text: str) -> str:
    """Escaped text, with `code` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _text(questions: Quiz) -> str:
    lines = []
    for question in questions.questions:
        lines.append(f"{question.key}. {question.text}")
        lines += [f"   {letter}  {text}" for letter, text in question.options.items()]
    return "\n".join(lines)
