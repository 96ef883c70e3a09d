"""Quizzes: letters are judged one by one, shown as widgets or text, and explained when right."""

import re

import pytest

from autograder import quizzes
from autograder.exercise import Quiz, all_exercises, find, hash_letter
from autograder.judge import Answer, judge
from autograder.lessons import reference

QUIZZES = [exercise for exercise in all_exercises() if isinstance(exercise, Quiz)]


def verdict_on(quiz, answers):
    return judge(quiz, Answer.of_source(f"answers = {answers!r}\n", "/nowhere/answers.py"))


@pytest.mark.parametrize("quiz", QUIZZES, ids=lambda quiz: quiz.id)
class TestEveryQuiz:
    def right(self, quiz):
        return {
            question.key: letter
            for question in quiz.questions
            for letter in question.options
            if hash_letter(quiz.id, question.key, letter) == question.right
        }

    def test_one_letter_of_each_question_is_right_and_the_lesson_has_them(self, quiz):
        right = self.right(quiz)
        assert list(right) == [question.key for question in quiz.questions]
        assert reference(quiz.lesson)["answers"] == right

    def test_each_right_letter_earns_its_own_point(self, quiz):
        right = self.right(quiz)
        assert verdict_on(quiz, {key: letter.upper() for key, letter in right.items()}).points == 3.0
        key, *_ = right
        assert verdict_on(quiz, {**right, key: next(letter for letter in "abcd" if letter != right[key])}).points == 2.0
        assert verdict_on(quiz, {key: right[key]}).points == 1.0

    @pytest.mark.parametrize("answers", [None, [], "abc", {}, {"q1": "e"}, {"q1": 3}, {"q1": None}, {1: "a"}])
    def test_answers_that_are_none_earn_nothing_and_get_a_sentence(self, quiz, answers):
        verdict = verdict_on(quiz, answers)
        assert verdict.points == 0.0
        assert re.match(r"`answers` is|it has no answer yet|'.+' is none of its letters", verdict.first_failure.message)
        assert verdict.one_line().count("q1:") == 1

    def test_the_widget_turns_clicks_into_the_line_to_type(self, quiz):
        box = quizzes._widget(quiz)
        choices = [child for child in box.children if hasattr(child, "options")]
        for choice, letter in zip(choices, self.right(quiz).values(), strict=True):
            choice.value = letter
        line = re.sub(r"<[^>]+>|&quot;", "", box.children[-1].value)
        assert all(f"{key}: {letter}" in line for key, letter in self.right(quiz).items())

    def test_plain_text_has_every_option(self, quiz):
        text = quizzes._text(quiz)
        assert all(option in text for question in quiz.questions for option in question.options.values())


def test_an_exercise_is_no_quiz():
    with pytest.raises(TypeError, match="is an exercise, not a quiz"):
        quizzes.quiz("my_share")


def test_text_is_escaped_and_code_is_code():
    assert quizzes._html("a < `b`") == "a &lt; <code>b</code>"


def test_explanations_are_shown_only_when_all_is_right(capsys):
    quizzes.explain(find("quiz_00"))
    assert "q1." in capsys.readouterr().out
