"""Ranks that are threads of this process: a transport without MPI, for tests of the messages between ranks."""

import time

from evolve.cluster import Transport


class Wire(Transport):
    """One of several ranks that are threads of this process; rank 0 counts its bytes."""

    def __init__(self, rank, boxes):
        super().__init__()
        self.rank, self.size = rank, len(boxes)
        self.hosts, self.pids = ["here"] * len(boxes), [0] * len(boxes)
        self._boxes = boxes

    def send(self, rank, buffer):
        self.bytes_moved += buffer.nbytes
        self._boxes[rank].append((self.rank, buffer))

    def probe(self):
        if not self._boxes[self.rank]:
            return None
        source, buffer = self._boxes[self.rank].popleft()
        self.bytes_moved += buffer.nbytes
        return source, buffer

    def backoff(self, least=0.0):
        time.sleep(1e-3)
