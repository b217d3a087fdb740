"""Questions to workers: who answers does not matter, and nobody waits for who was lost."""

import logging
import time

import numpy as np
import pytest

from evolve.cluster import messages
from evolve.cluster.messages import Alive, Answer, Question
from evolve.cluster.work_queue import Questions

SERIAL = 9


def content(number):
    return np.array([number], np.uint8)


class FakeTransport:
    """Remembers what was sent: worker -> the questions it has in hand."""

    def __init__(self):
        self.hands = {}
        self.dead = []
        self.abandoned = []
        self.hosts = ["here"] * 9

    def send(self, worker, frame):
        question = messages.decode(frame)
        assert isinstance(question, Question)
        assert question.serial == SERIAL
        assert question.content.tolist() == [question.number]
        self.hands.setdefault(worker, []).append(question.number)

    def lost(self):
        dead, self.dead = self.dead, []
        return dead

    def abandon(self, worker):
        self.abandoned.append(worker)


def asking(number=5, workers=(1, 2), patience=60.0):
    transport = FakeTransport()
    workers = list(workers)
    return transport, workers, Questions(transport, workers, [content(n) for n in range(number)], SERIAL, patience)


def answer(transport, questions, worker, serial=SERIAL):
    number = transport.hands[worker].pop(0)
    return questions.take(worker, Answer(serial, number, content(number + 100)))


def test_every_question_is_answered_once_whoever_is_free():
    transport, _, questions = asking()
    assert {worker: len(hand) for worker, hand in transport.hands.items()} == {1: 2, 2: 2}
    for _ in range(4):  # 2 does nothing; it has two
        if transport.hands[1]:
            assert answer(transport, questions, 1)
    assert questions.unanswered == 2
    while questions.unanswered:
        answer(transport, questions, 2)
    assert [found[1].tolist() for found in questions.answers] == [[n + 100] for n in range(5)]
    assert {found[0] for found in questions.answers} == {1, 2}


def test_other_messages_are_not_taken():
    transport, _, questions = asking()
    assert not questions.take(1, Alive())
    assert answer(transport, questions, 1, serial=SERIAL - 1)  # of a round that was given up
    assert questions.unanswered == 5


def test_what_a_dead_worker_had_is_asked_of_the_others(caplog):
    transport, workers, questions = asking()
    transport.dead = [2]
    with caplog.at_level(logging.WARNING, "evolve"):
        questions.look()
    assert workers == [1]
    assert "rank 2 on here was lost" in caplog.text
    while questions.unanswered:
        answer(transport, questions, 1)
    assert [found[0] for found in questions.answers] == [1] * 5


def test_without_workers_nothing_is_waited_for():
    transport, workers, questions = asking()
    answer(transport, questions, 2)
    transport.dead = [1, 2]
    questions.look()
    assert not workers
    assert questions.unanswered == 0
    assert questions.answers.count(None) == 4


def test_a_worker_that_says_nothing_is_done_without(caplog):
    transport, workers, questions = asking(patience=0.05)
    time.sleep(0.06)
    questions.take(1, Alive())
    with caplog.at_level(logging.WARNING, "evolve"):
        questions.look()
    assert transport.abandoned == [2]
    assert workers == [1]
    assert "rank 2 on here no longer answers" in caplog.text


@pytest.mark.parametrize("number", [0, 1])
def test_few_questions_may_have_more_workers(number):
    transport, _, questions = asking(number, workers=(1, 2, 3))
    assert questions.unanswered == number
    if number:
        answer(transport, questions, 1)
    assert questions.unanswered == 0
