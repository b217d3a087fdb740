"""Hosts that fall silent: their ranks are done without where MPI can go on, else the run stops at once."""

import pytest
from wire import Wire

from evolve.cluster.losses import check_silence
from evolve.errors import HostLost, Stopped


class SomeSilent:
    """In place of the watch over other hosts: ranks that are silent once."""

    def __init__(self, *ranks):
        self._ranks = ranks

    def silent(self):
        ranks, self._ranks = self._ranks, ()
        return list(ranks)


def scene(*silent, tolerant=True):
    transport = Wire(0, [None] * 6)
    transport.hosts = [f"node{1 + rank // 2}" for rank in range(6)]
    transport.host, transport.tolerant = "node1", tolerant
    transport._failed_ranks = list
    transport.watch_hosts(SomeSilent(*silent))
    return transport


def test_all_ranks_of_a_silent_host_are_lost_with_it():
    transport = scene(5)
    assert transport.lost() == [4, 5]
    assert transport.silent == {"node3"}
    assert transport.abandoned == {4, 5}
    transport._asked = 0.0
    assert transport.lost() == []
    check_silence(transport)


def test_where_mpi_cannot_go_on_the_run_stops():
    transport = scene(4, tolerant=False)
    assert transport.lost() == [4, 5]
    with pytest.raises(HostLost, match=r"the silence of node3, for 30 s \(EVOLVE_SILENCE_SECONDS\)"):
        check_silence(transport)
    assert issubclass(HostLost, Stopped)


def test_a_host_that_hears_nobody_may_itself_be_cut_off():
    transport = scene(2, 4)
    assert transport.lost() == [2, 3, 4, 5]
    with pytest.raises(HostLost, match="node2, node3"):
        check_silence(transport)
