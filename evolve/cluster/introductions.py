"""The first thing ranks say: each tells rank 0 its host and process, and hears where rank 0 can be watched from.

One by one and not by a collective operation of MPI, which waits for the dead. The launcher is asked after these too:
MPI at a rank never hears of those that have died before its own start was over.
"""

import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from evolve.cluster.keepalive import CoordinatorWatch, HostWatch, Meeting
from evolve.cluster.limits import silence_seconds
from evolve.errors import RunError

if TYPE_CHECKING:
    from evolve.cluster.starting import StartWatch
    from evolve.cluster.transport import Buffer, Transport

_MOST_WATCHED = 512  # ranks: a process may have a thousand files
_UNKNOWN = "?"
_CALL_EVERY = 1.0  # seconds


def introduce(transport: "Transport", watch: "StartWatch") -> None:
    """Have all ranks meet; those that die meanwhile, where MPI survives that, are done without.

    Raises RunError when rank 0 is lost, and InputError for a limit that is no duration.
    """
    if transport.rank:
        watch.missing = lambda: [0]
        _present(transport, watch)
    else:
        _welcome(transport, watch)


class _Roll:
    """Who has been lost, as MPI and, every second, the launcher know it; that is asked only where MPI survives it."""

    def __init__(self, transport: "Transport", watch: "StartWatch") -> None:
        self._transport = transport
        self._watch = watch
        self._called = time.monotonic()

    def lost(self) -> set[int]:
        """Return the ranks that are known to be lost."""
        self._transport.lost()
        if time.monotonic() - self._called > _CALL_EVERY:
            self.call()
        return self._transport.gone

    def call(self) -> None:
        """Ask the launcher."""
        self._called = time.monotonic()
        if self._transport.tolerant:
            self._transport.lose(self._watch.ended())


def _present(transport: "Transport", watch: "StartWatch") -> None:
    transport.send(0, _packed({"host": transport.host, "pid": os.getpid()}))
    answer = None
    roll = _Roll(transport, watch)
    while answer is None:
        answer = transport.probe()
        if answer is None and 0 in roll.lost():
            raise RunError("rank 0 was lost before there was anything to do")
        if answer is None:
            transport.backoff()
    heard = json.loads(answer[1].tobytes())
    if heard:
        meeting = Meeting(tuple(heard["addresses"]), heard["port"], bytes.fromhex(heard["token"]), heard["seconds"])
        transport.watch_coordinator(CoordinatorWatch(meeting, transport.rank))


def _welcome(transport: "Transport", watch: "StartWatch") -> None:
    seconds = silence_seconds()
    hosts = [transport.host] + [_UNKNOWN] * (transport.size - 1)
    pids = [os.getpid()] + [0] * (transport.size - 1)
    missing = set(range(1, transport.size))
    watch.missing = lambda: sorted(missing)
    roll = _Roll(transport, watch)
    while missing:
        heard = transport.probe()
        missing -= roll.lost()
        if heard is None:
            transport.backoff()
            continue
        card = json.loads(heard[1].tobytes())
        hosts[heard[0]], pids[heard[0]] = card["host"], card["pid"]
        missing.discard(heard[0])
    roll.call()  # once more: from now on MPI hears of everybody
    transport.hosts, transport.pids = hosts, pids
    elsewhere = _watched(hosts)
    if elsewhere:
        transport.watch_hosts(HostWatch(seconds))
    for rank in range(1, transport.size):
        transport.send(rank, _packed(_meeting(transport) if rank in elsewhere else {}))


def _meeting(transport: "Transport") -> dict[str, object]:
    meeting = transport.meeting
    assert meeting is not None
    return {
        "addresses": meeting.addresses,
        "port": meeting.port,
        "token": meeting.token.hex(),
        "seconds": meeting.seconds,
    }


def _watched(hosts: list[str]) -> set[int]:
    """Return the ranks on other hosts that are to be connected: all of a few, the first ones of each host of many."""
    elsewhere = [rank for rank, host in enumerate(hosts) if host not in (hosts[0], _UNKNOWN)]
    each = max(1, _MOST_WATCHED // max(1, len({hosts[rank] for rank in elsewhere})))
    met: Counter[str] = Counter()
    chosen = set()
    for rank in elsewhere:
        met[hosts[rank]] += 1
        if met[hosts[rank]] <= each:
            chosen.add(rank)
    return chosen


def _packed(contents: dict[str, object]) -> "Buffer":
    return np.frombuffer(json.dumps(contents).encode(), np.uint8)
