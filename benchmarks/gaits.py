"""Gaits of a walker's archive, and what a damaged leg leaves of them: the table of docs/fronts.md (Cully et al., 2015).

    python benchmarks/gaits.py runs/gaits/seed-*.h5
    python benchmarks/gaits.py runs/gaits/seed-1.h5 --film gaits.mp4 --cells 9,9 5,12 12,5 3,9 9,3 7,7

A damaged joint has no motor: the connections to its output are removed, so its torque is 0. Every elite of the archive
plays five held-out episodes unharmed and damaged, by which gaits are chosen; the chosen ones play twenty others for the
table, and unharmed all do. An episode counts as a fall if it ends before its limit of steps with a return below 230: a
walker that reaches the end of the ground has more.
"""

import argparse
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve import environments, store, training, verification
from evolve.analysis import video
from evolve.analysis.champion import Elite, elites_of
from evolve.analysis.runs import script_ranks
from evolve.analysis.video.encoders import Encoder, library
from evolve.analysis.video.picture import font
from evolve.cluster import Coordinator
from evolve.errors import InputError
from evolve.genome import Genomes, concatenate, pruned
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults, generation_keys
from evolve.store.disk import check_writable
from evolve.training import Experiment
from evolve.verification import choose_episode, make_engine

JOINTS = ("hip 1", "knee 1", "hip 2", "knee 2")
TRIALS, EPISODES = 5, 20
LEAST_OF_A_WHOLE_WALK = 230.0
FILM_STEPS = 400


def damaged(genomes: Genomes, experiment: Experiment, joint: int) -> Genomes:
    """Return genomes without the connections to the output of a joint."""
    blocks, mask = experiment.network.blocks, genomes.mask.copy()
    last = max(block.layer for block in blocks)
    for block in blocks:
        if block.layer == last:
            shaped = mask[:, block.start : block.stop].reshape(-1, block.rows, block.columns)
            shaped[:, :, block.columns - experiment.action_size + joint] = False
    return pruned(genomes.weights, mask)


def play(
    run: store.StoredRun,
    experiment: Experiment,
    elites: list[Elite],
    genomes: Genomes,
    coordinator: Coordinator,
    episodes: int = TRIALS + EPISODES,
) -> PopulationResults:
    """Play the first held-out episodes of the genomes of elites, each with the normalizer of its own generation."""
    normalizers = np.stack([run.records[elite.generation].normalizer for elite in elites])
    keys = generation_keys(0, len(genomes), common=True)
    batch = EpisodeBatch.of(
        run.header.seed, Purpose.HELD_OUT, genomes, keys, range(episodes), normalizers, traces="none"
    )
    return coordinator.evaluate(experiment.in_evaluation().rollout_spec, batch)


def stands(results: PopulationResults, limit: int) -> np.ndarray:
    """Return [P]: whether each genome falls in no episode."""
    falls = (results.lengths < limit) & (results.returns < LEAST_OF_A_WHOLE_WALK)
    return ~falls.any(axis=1)


@dataclass(frozen=True)
class Gaits:
    """The numbers of an archive, without harm and with each damaged motor.

    Attributes:
        name: The run in words.
        counts: The numbers of all gaits, of gaits that never fall, and of gaits that also have a mean above 200.
        best: The gait with the best trial, in words; empty for several runs.
        walking: The gaits of the last count, in words; likewise.
        harm: [motors, 4], the mean of the best gait with the damage, the mean of the best other gait, the mean of this
            one unharmed, and the number of gaits with half of the best one's unharmed mean, or more, in their trials.
        others: The cell of the best other gait for each motor.
    """

    name: str
    counts: tuple[int, int, int]
    best: str
    walking: str
    harm: np.ndarray
    others: tuple[str, ...]

    def __str__(self) -> str:
        counts = "{} gaits, {} never fall, {} of these have a mean above 200".format(*self.counts)
        which = f" The best gait is {self.best}. Above 200: {self.walking}." if self.best else ""
        lines = [f"{self.name}: {counts}.{which}", "", *_HEAD]
        for joint, (best, other, whole, many), cell in zip(JOINTS, self.harm, self.others, strict=True):
            lines.append(f"| {joint} | {best:.0f} | **{other:.0f}** | {cell} | {whole:.0f} | {many:.0f} |")
        return "\n".join(lines)


_HEAD = (
    "| damaged motor | best gait | best other gait | its cell | unharmed | gaits with half of the best, or more |",
    "|---|---|---|---|---|---|",
)


def measure(run: store.StoredRun, coordinator: Coordinator) -> Gaits:
    """Return the numbers of an archive."""
    experiment = training.reload(run)
    elites = elites_of(run)
    genomes = concatenate(*(elite.genome for elite in elites))
    limit = environments.max_episode_steps(experiment.config.env) or 0
    whole = play(run, experiment, elites, genomes, coordinator)
    means = whole.returns[:, TRIALS:].mean(axis=1)
    best = int(np.argmax(whole.returns[:, :TRIALS].mean(axis=1)))
    standing = stands(whole, limit)
    walking = np.flatnonzero(standing & (means > 200))

    def words(n: int) -> str:
        return f"{_cell(elites[n])} ({means[n]:.0f})"

    harm, others = [], []
    for joint in range(len(JOINTS)):
        limping = damaged(genomes, experiment, joint)
        trials = play(run, experiment, elites, limping, coordinator, TRIALS).returns.mean(axis=1)
        many = np.count_nonzero(trials >= means[best] / 2)
        trials[best] = -np.inf
        other = int(np.argmax(trials))
        pair, two = [elites[best], elites[other]], limping.take(np.array([best, other]))
        after = play(run, experiment, pair, two, coordinator).returns[:, TRIALS:].mean(axis=1)
        harm.append([*after, means[other], many])
        others.append(_cell(elites[other]))
    name = f"seed {run.header.seed}, {run.steps / 1e6:.1f} M steps, digest {run.digest[:8]}"
    counts = len(elites), np.count_nonzero(standing), len(walking)
    return Gaits(name, counts, words(best), ", ".join(map(words, walking)), np.array(harm), tuple(others))


def medians(found: list[Gaits]) -> Gaits:
    """Return the medians over runs, and in place of a cell the number of runs in which the other gait does better."""
    harm = np.stack([gaits.harm for gaits in found])
    better = np.count_nonzero(harm[:, :, 1] > harm[:, :, 0], axis=0)
    counts = np.median([gaits.counts for gaits in found], axis=0).astype(int).tolist()
    others = tuple(f"better in {n} of {len(found)}" for n in better)
    return Gaits(f"median of {len(found)} runs", tuple(counts), "", "", np.median(harm, axis=0), others)


class _EnoughError(Exception):
    """A film is long enough."""


def labelled(picture: np.ndarray, words: str) -> np.ndarray:
    """Return a picture [H, W, 3] with a label at the top and a white edge, by which it is told from its neighbours."""
    image = library("PIL.Image").fromarray(picture)
    draw = library("PIL.ImageDraw").Draw(image)
    draw.text((12, 10), words, fill=(20, 20, 40), font=font(15))
    draw.rectangle((0, 0, image.width - 1, image.height - 1), outline="white", width=2)
    return np.asarray(image)


def _contacts(run: store.StoredRun, cell: tuple[int, ...]) -> str:
    """Return in words how much the feet of the walkers in a cell touch the ground."""
    options = training.load_config(run.header.config).strategy.table()
    shares = []
    for place, number, (low, high) in zip(cell, options["cells"], options["bounds"], strict=True):
        width = (high - low) / number
        shares.append(f"{100 * (low + place * width):.0f} to {100 * (low + (place + 1) * width):.0f} %")
    return f"cell {','.join(map(str, cell))}: feet down {' and '.join(shares)}"


def film(run: store.StoredRun, cells: list[tuple[int, ...]], path: Path) -> None:
    """Film the first held-out episode of some elites, side by side in rows of three."""
    environments.draw_without_display()
    experiment, _ = video.drawable(training.reload(run))
    films = []
    for cell in cells:
        chosen = choose_episode(run, experiment, purpose=Purpose.HELD_OUT, which=training.GenomeChoice(cell=cell))
        frames: list[np.ndarray] = []
        with closing(make_engine(experiment, chosen, "rgb_array")) as engine:

            def shoot(step: int, _: float, engine: environments.Engine = engine, frames: list = frames) -> None:
                if step > FILM_STEPS:
                    raise _EnoughError
                if step % 2 == 0:
                    frames.append(engine.frame(0)[140:320, :360])

            with suppress(_EnoughError):
                verification.play(run, experiment, chosen, engine, shoot)
            fps = engine.fps / 2
        frames += frames[-1:] * (FILM_STEPS // 2 + 1 - len(frames))  # a fallen walker lies still
        films.append([labelled(frame, _contacts(run, cell)) for frame in frames])
    film = Encoder(path, fps)
    for pictures in zip(*films, strict=True):
        rows = [np.concatenate(pictures[n : n + 3], axis=1) for n in range(0, len(pictures), 3)]
        film.write(library("PIL.Image").fromarray(np.concatenate(rows)), 1)
    film.close()


def _cell(elite: Elite) -> str:
    return f"`{','.join(map(str, elite.cell))}`"


def main(argv: list[str] | None = None) -> int:
    """Print the report of a run; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="run files of a walker with an archive")
    parser.add_argument("--film", type=Path, metavar="OUT", help="film gaits instead: a file .mp4")
    cells = "the cells of these gaits, a multiple of three"
    parser.add_argument("--cells", nargs="+", default=[], metavar="I,J", help=cells)
    options = parser.parse_args(argv)
    if options.film is not None:
        if not options.cells or len(options.cells) % 3:
            parser.error(f"--cells: expected {cells}, got {len(options.cells)}")
        try:
            video.check_library()
            check_writable(options.film, (".mp4",))
        except InputError as error:
            parser.error(str(error))
        film(store.read(options.files[0]), [tuple(map(int, cell.split(","))) for cell in options.cells], options.film)
        return 0

    def report(coordinator: Coordinator) -> bytes:
        found = [measure(store.read(path), coordinator) for path in options.files]
        return "\n\n".join(map(str, [*found, medians(found)] if len(found) > 1 else found)).encode()

    print(script_ranks().call(report).decode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
