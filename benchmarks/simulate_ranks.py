"""How well thousands of ranks would be kept busy: a simulation of time, with the real work queue and the real messages.

    python benchmarks/simulate_ranks.py --ranks 64 256 1024 4096
    python benchmarks/simulate_ranks.py --ranks 65 257 1025 4097 --threads 64 --seconds 0.005 --episodes 70656

Workers sleep during their episodes, like the workers of `evolve.environments.function_task`, or each thread of a worker
does. Rank 0 runs its real code for each message: it decodes the message, books and collects the results, and encodes
the next chunk. The simulated time per message is a constant that includes MPI (`--microseconds`; `--measure` prints the
time on this machine without MPI). The latency of a message is a constant, too (`--latency`). With fewer than 15
ranks real ones look for messages more often, and a real worker holds results back for two seconds at most. The printed
numbers are simulated, not measured.
"""

import argparse
import heapq
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]
from some_results import results  # noqa: E402

from evolve.cli.bench.measurements import list_schedule  # noqa: E402
from evolve.cluster import messages  # noqa: E402
from evolve.cluster.coordinator import idle_sleep  # noqa: E402
from evolve.cluster.jobs import Evaluation  # noqa: E402
from evolve.cluster.messages import ChunkResults  # noqa: E402
from evolve.cluster.transport import LONGEST_SLEEP, SHARE_ASLEEP, SHORTEST_SLEEP  # noqa: E402
from evolve.cluster.worker import SHORTEST_HELD  # noqa: E402
from evolve.cluster.workers import WorkQueue, suitable_sizes  # noqa: E402
from evolve.genome import Genomes  # noqa: E402
from evolve.numerics.streams import Purpose  # noqa: E402
from evolve.rollouts import EpisodeBatch, PopulationResults, RolloutSpec, generation_keys  # noqa: E402

EPISODES = 8  # of each candidate


class Worker:
    """A worker rank: each of its threads plays one episode after another, and it sends results in parcels."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, int]] = deque()  # (genome, episode)
        self.finished: list[tuple[int, int]] = []
        self.running = 0
        self.idle_since = self.sent = 0.0


class World:
    """Workers, rank 0, and the messages between them.

    Args:
        ranks: R.
        threads: The threads of each worker.
        seconds: The mean duration of an episode.
        episodes: The number of episodes, to the nearest multiple of EPISODES.
        each: Seconds of rank 0 for each message that it sends or receives.
        latency: Seconds from sending a message to its arrival.
        seed: The seed of the durations of episodes.
    """

    def __init__(
        self, ranks: int, threads: int, seconds: float, episodes: int, each: float, latency: float, seed: int
    ) -> None:
        genomes = max(1, round(episodes / EPISODES))
        made = Genomes(np.zeros((genomes, 1), np.float32), np.ones((genomes, 1), np.bool_))
        self.batch = EpisodeBatch.of(1, Purpose.EPISODE, made, generation_keys(0, genomes), range(EPISODES))
        self.draw = np.random.default_rng(seed)
        self.times = seconds * self.draw.uniform(0.5, 1.5, (genomes, EPISODES))
        self.each, self.latency, self.seconds, self.threads = each, latency, seconds, threads
        self.workers = {rank: Worker() for rank in range(1, ranks)}
        self.events: list[tuple[float, int, str, int, object]] = []
        self.now = self.free = self.work = self.begun = self.spent = self.measured = 0.0
        self.messages = self.count = 0
        spec = RolloutSpec("", threads, 0, 60.0)
        sizes = partial(suitable_sizes, spec=spec, episode_seconds=seconds / threads)
        tables = PopulationResults.of(self.batch, 0)
        self.job = Evaluation(spec, self.batch, ["here"] * ranks, 1, sizes, lambda *_: None, tables)
        self.queue = WorkQueue(len(self.job), self.workers, sizes, self._send)

    def _send(self, worker: int, items: np.ndarray) -> None:
        """Send a chunk; it arrives one latency after rank 0 has sent it."""
        frame = messages.encode(self.job.message(items))
        self.messages += 1
        self.spent = self.spent + self.each
        self._event(self.begun + self.spent + self.latency, "chunk", worker, frame)

    def _event(self, at: float, kind: str, worker: int, what: object = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (at, self.count, kind, worker, what))

    def run(self) -> None:
        """Advance the time until all episodes are done."""
        self._coordinate(0.0, self.queue.hand_out)
        while self.queue.unfinished:
            self.now, _, kind, worker, what = heapq.heappop(self.events)
            if kind == "chunk":
                self._take(worker, what)
            elif kind == "episode":
                self._finish(worker, what)
            else:
                self._receive(worker, what)

    def _coordinate(self, arrived: float, work) -> None:
        """Let rank 0 work once it is free and has noticed the message.

        Its CPU time on this machine is only measured; the simulated time is the constant per message.
        """
        if arrived > self.free:  # it was asleep
            least = idle_sleep(self.queue.items_ahead * self.seconds / self.threads)
            arrived += max(_sleep(arrived - self.free), least) * self.draw.random()
        self.begun, self.spent = max(arrived, self.free), 0.0
        begin = time.thread_time()
        work()
        self.measured += time.thread_time() - begin
        self.work += self.spent
        self.free = self.begun + self.spent

    def _take(self, worker: int, frame: object) -> None:
        batch = messages.decode(frame).batch  # type: ignore[arg-type, union-attr]
        state = self.workers[worker]
        state.waiting += zip(batch.genome_ids[batch.rows].tolist(), batch.episodes.tolist(), strict=True)
        late = 0.0 if state.running else _sleep(self.now - state.idle_since) * self.draw.random()
        while state.waiting and state.running < self.threads:
            self._begin(worker, late)

    def _begin(self, worker: int, late: float = 0.0) -> None:
        """Let a thread begin the next episode of its worker."""
        state = self.workers[worker]
        key = state.waiting.popleft()
        state.running += 1
        self._event(self.now + late + self.times[key], "episode", worker, key)

    def _finish(self, worker: int, key: tuple[int, int]) -> None:
        state = self.workers[worker]
        state.running -= 1
        state.finished.append(key)
        left = len(state.waiting) + state.running
        if not left or (len(state.finished) >= left and self.now - state.sent > SHORTEST_HELD):
            state.sent = self.now
            self._event(self.now + self.latency, "results", worker, self._frame(state.finished))
            state.finished = []
        state.idle_since = self.now
        if state.waiting:
            self._begin(worker)

    def _frame(self, finished: list[tuple[int, int]]) -> np.ndarray:
        genomes, episodes = np.array(finished, np.int32).T
        lengths = np.ones(len(finished), np.int32)
        return messages.encode(ChunkResults(1, 0.0, 0.0, results(genomes=genomes, episodes=episodes, lengths=lengths)))

    def _receive(self, worker: int, frame: object) -> None:
        def work() -> None:
            self.messages += 1
            self.spent += self.each
            self.job.handle(messages.decode(frame), worker, self.queue)  # type: ignore[arg-type]

        self._coordinate(self.now, work)

    def report(self) -> SimpleNamespace:
        """Return the results: efficiency, the share of a core that rank 0 uses, and the number of messages.

        Even a scheduler that costs nothing waits for the last episodes: its efficiency is `most`.
        """
        lanes = len(self.workers) * self.threads
        ideal = float(self.times.sum()) / lanes
        seconds = max(self.now, self.free)  # the last message has arrived, and rank 0 has done its work
        return SimpleNamespace(
            efficiency=ideal / seconds,
            most=ideal / list_schedule(self.times.ravel().tolist(), lanes),
            share=self.work / seconds,
            messages=self.messages,
            each=self.measured / self.messages,
        )


def _sleep(waited: float) -> float:
    """Return the seconds that a rank sleeps between two looks for messages, after it has waited for some seconds."""
    return min(max(SHARE_ASLEEP * waited, SHORTEST_SLEEP), LONGEST_SLEEP)


def main() -> int:
    """Simulate; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[65, 257, 1024, 4096])
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--seconds", type=float, default=0.05, help="mean of an episode")
    parser.add_argument("--ideal", type=float, default=3.0, help="seconds that a batch takes if no rank ever waits")
    parser.add_argument("--episodes", type=int, help="about how many; by default as many as --ideal says")
    parser.add_argument("--microseconds", type=float, default=100.0, help="of rank 0, for each message")
    parser.add_argument("--latency", type=float, default=2e-4, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="print the CPU time of a message here, too")
    args = parser.parse_args()
    if min(args.ranks) < 2:
        parser.error("--ranks: expected at least 2, rank 0 and a worker")
    head = "efficiency, simulated | of a scheduler without cost | rank 0, of a core | messages |"
    print(f"| ranks | threads of a worker | episodes | {head}")
    print("|---|---|---|---|---|---|---|")
    for ranks in args.ranks:
        episodes = args.episodes or round((ranks - 1) * args.threads * args.ideal / args.seconds)
        each = 1e-6 * args.microseconds
        world = World(ranks, args.threads, args.seconds, episodes, each, args.latency, args.seed)
        world.run()
        found = world.report()
        shown = f"{found.efficiency:.3f} | {found.most:.3f} | {100 * found.share:.1f} % | {found.messages:,}"
        print(f"| {ranks:,} | {args.threads} | {world.times.size:,} | {shown} |", flush=True)
        if args.measure:
            print(f"measured here: {1e6 * found.each:.0f} microseconds of CPU time for each message", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
