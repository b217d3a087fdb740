"""Questions to workers, each answered by whoever is free; those that a lost worker had go to others."""

import logging
import time
from collections import deque
from collections.abc import Sequence

from evolve.cluster import messages
from evolve.cluster.messages import Answer, Message, Question
from evolve.cluster.transport import Buffer, Transport

_LOG = logging.getLogger("evolve")
_AHEAD = 2  # questions that a worker has at a time


class Questions:
    """A round of questions.

    Args:
        transport: To the workers.
        workers: Their ranks; modified: lost workers are removed.
        questions: What is asked.
        serial: The number of the round, which workers send back.
        patience: How long a worker may take to answer, in seconds, before it is done without.
    """

    def __init__(
        self, transport: Transport, workers: list[int], questions: Sequence[Buffer], serial: int, patience: float
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._questions = questions
        self._serial = serial
        self._patience = patience
        self._waiting = deque(range(len(questions)))
        self._asked: dict[int, list[int]] = {worker: [] for worker in workers}
        self._heard = dict.fromkeys(workers, time.monotonic())
        self.answers: list[tuple[int, Buffer] | None] = [None] * len(questions)
        """Who answered each question, and what."""
        for worker in workers * _AHEAD:
            self._ask(worker)

    @property
    def unanswered(self) -> int:
        """How many questions may still be answered; none without workers."""
        return self.answers.count(None) if self._workers else 0

    def take(self, worker: int, message: Message) -> bool:
        """Return whether a message is an answer, which is kept then; its worker is asked more."""
        if worker in self._heard:
            self._heard[worker] = time.monotonic()
        if not isinstance(message, Answer):
            return False
        if message.serial == self._serial and worker in self._asked and self.answers[message.number] is None:
            self.answers[message.number] = worker, message.content
            self._asked[worker].remove(message.number)
            self._ask(worker)
        return True

    def look(self) -> None:
        """Look once for dead and for silent workers; others are asked what they were asked."""
        for worker in self._transport.lost():
            self._do_without(worker, "was lost")
        now = time.monotonic()
        for worker in list(self._workers):
            if self._asked[worker] and now - self._heard[worker] > self._patience:
                self._transport.abandon(worker)
                self._do_without(worker, "no longer answers, and is given up")

    def _do_without(self, worker: int, how: str) -> None:
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._waiting.extendleft(self._asked.pop(worker))
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        _LOG.warning("%s: rank %d on %s %s; others do its work", when, worker, self._transport.hosts[worker], how)
        for other in self._workers * _AHEAD:
            self._ask(other)

    def _ask(self, worker: int) -> None:
        if self._waiting and len(self._asked[worker]) < _AHEAD:
            number = self._waiting.popleft()
            self._asked[worker].append(number)
            if len(self._asked[worker]) == 1:
                self._heard[worker] = time.monotonic()
            self._transport.send(worker, messages.encode(Question(self._serial, number, self._questions[number])))
