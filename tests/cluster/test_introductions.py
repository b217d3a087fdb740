"""Introductions among ranks of which some are lost meanwhile."""

from types import SimpleNamespace

import pytest

from evolve.cluster import Transport, introduction
from evolve.errors import RunError


class Silent(Transport):
    """A rank of three that hears nothing, of an MPI that survives deaths and has missed one."""

    def __init__(self, rank, cards=()):
        super().__init__()
        self.rank, self.size, self.tolerant = rank, 3, True
        self.sent = []
        self.cards = [(rank, introduction._packed({"host": self.host, "pid": 7})) for rank in cards]

    def send(self, rank, _):
        self.sent.append(rank)

    def probe(self):
        return self.cards.pop() if self.cards else None

    def lost(self):
        return []


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(introduction, "_CALL_EVERY", 0.0)


def watch(*ended):
    return SimpleNamespace(ended=lambda: set(ended))


@pytest.mark.parametrize("cards", [[2], [1, 2]], ids=["before its card came", "after that"])
def test_rank_0_does_without_one_of_which_only_the_launcher_knows(cards):
    transport = Silent(0, cards)
    introduction.introduce(transport, watch(1))
    assert transport.gone == {1}
    assert transport.abandoned == set()


def test_a_rank_hears_from_the_launcher_that_rank_0_is_lost():
    with pytest.raises(RunError, match="rank 0 was lost"):
        introduction.introduce(Silent(1), watch(0))


def test_where_a_death_ends_the_job_the_launcher_is_not_asked():
    transport = Silent(0, [1, 2])
    transport.tolerant = False
    introduction.introduce(transport, watch(1))
    assert transport.gone == set()
