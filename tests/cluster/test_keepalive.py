"""Silent hosts are noticed, even if their processes are busy; the end of a process is no silence of its host."""

import errno
import socket
from dataclasses import replace

import pytest
from conftest import wait_for

from evolve.cluster import watchdog
from evolve.cluster.watchdog import CoordinatorWatch, HostWatch, own_addresses

# A process keeps its connections to its end, so nothing closes them here, either.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def watches(monkeypatch):
    """Rank 0's watch, and a function that connects another rank."""
    monkeypatch.setattr(watchdog, "own_addresses", lambda: ["127.0.0.1"])
    watch = HostWatch(30.0, ranks=(1, 2, 3, 4))
    monkeypatch.setattr(watchdog, "own_addresses", list)  # as on another host
    return watch, lambda rank, **how: CoordinatorWatch(replace(watch.endpoint, **how), rank)


def connected(watch, *ranks):
    wait_for(lambda: watch.find_silent() == [] and set(ranks) <= set(watch.connections))


def test_running_ranks_are_not_silent(watches):
    watch, connect = watches
    workers = {rank: connect(rank) for rank in (3, 1)}
    connected(watch, 1, 3)
    assert watch.find_silent() == []
    assert not any(worker.is_silent() for worker in workers.values())


def test_a_host_may_be_silent_for_longer_than_linux_waits_between_probes(watches):
    """Linux takes at most 32,767 s; EVOLVE_SILENCE_SECONDS may be almost a million."""
    watch, connect = watches
    watch.endpoint = replace(watch.endpoint, seconds=999_999.0)
    worker = connect(1)
    connected(watch, 1)
    assert not worker.is_silent()


def test_a_process_that_ends_is_no_silent_host(watches):
    watch, connect = watches
    worker = connect(1)
    connected(watch, 1)
    assert not worker.is_silent()
    del worker  # with its socket
    wait_for(lambda: watch.find_silent() == [] and not watch.connections)


@pytest.mark.parametrize("failure", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_a_connection_that_the_kernel_gives_up_means_a_silent_host(watches, monkeypatch, failure):
    watch, connect = watches
    workers = connect(1), connect(2)
    connected(watch, 1, 2)
    given_up = watch.connections[2]
    monkeypatch.setattr(watchdog, "end_error", lambda connection: failure if connection is given_up else None)
    assert watch.find_silent() == [2]
    assert watch.find_silent() == []
    del workers


def test_a_worker_notices_that_rank_0_is_gone(watches):
    watch, connect = watches
    worker = connect(1)
    connected(watch, 1)
    watch.connections[1].close()
    wait_for(worker.is_silent)


def test_strangers_are_shown_the_door(watches):
    watch, connect = watches
    stranger = connect(7, token="?" * 32)
    worker = connect(1)
    connected(watch, 1)
    assert not worker.is_silent()
    assert 7 not in watch.connections
    wait_for(stranger.is_silent)


def test_the_port_is_closed_when_all_ranks_have_connected(watches):
    """Otherwise any user of the network could take all file descriptors of rank 0."""
    watch, connect = watches
    silent = socket.create_connection(("127.0.0.1", watch.endpoint.port))
    workers = [connect(rank) for rank in (1, 2, 3, 4)]
    late = socket.create_connection(("127.0.0.1", watch.endpoint.port))  # such as another address of the same rank
    connected(watch, 1, 2, 3, 4)
    for stranger in (silent, late):
        stranger.settimeout(10)
        assert stranger.recv(1) == b""  # closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", watch.endpoint.port))
    assert watch.find_silent() == []
    assert not any(worker.is_silent() for worker in workers)


def test_an_address_that_this_host_has_too_is_not_the_other_host(watches, monkeypatch):
    watch, connect = watches
    monkeypatch.setattr(watchdog, "own_addresses", lambda: ["127.0.0.1"])
    assert not connect(1).is_silent()
    assert watch.find_silent() == []
    assert not watch.connections


def test_an_address_without_a_route_is_no_silent_host(watches):
    watch, connect = watches
    nowhere = "255.255.255.255"  # no host: a TCP connection to it fails at once
    assert not connect(1, addresses=(nowhere,)).is_silent()
    worker = connect(2, addresses=(nowhere, "127.0.0.1"))
    connected(watch, 2)
    assert not worker.is_silent()


def test_addresses_are_those_that_other_hosts_can_reach():
    assert not [address for address in own_addresses() if address.startswith("127.")]
