"""Compare a run file or a champion file with the published result of its experiment and seed.

`published.json` is the data behind docs/results.md: the settings of every experiment, and for each seed the number of
generations and the digest of the last one. `experiments/results.py` writes it. It is a part of the package, so an
installation needs no repository to answer.

Nothing is played here, and the file is trusted; `reevaluate` and `rerun` test whether it tells the truth.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolve.config import Config, differences, flatten, parse
from evolve.errors import InputError, pluralize, sanitize
from evolve.store import Stored, StoredRun
from evolve.training import is_portable, load_config
from evolve.verification.verdict import ENGINE, Cause, Side, Verdict, as_texts

PUBLISHED = Path(__file__).with_name("published.json")


@dataclass(frozen=True)
class PublishedSeed:
    """The published result of one seed of an experiment.

    Attributes:
        experiment: The name of the experiment.
        config: Its settings.
        seed: The seed.
        num_generations: The number of generations that the run had.
        digest: The digest of the last one, 64 hexadecimal characters.
    """

    experiment: str
    config: Config
    seed: int
    num_generations: int
    digest: str

    def differences(self, config: Config) -> list[tuple[str, object, object]]:
        """Return (key, published, other) for each setting that defines the experiment, except the engine."""
        return [difference for difference in differences(self.config, config) if difference[0] != ENGINE]


def read_published(path: Path = PUBLISHED) -> list[PublishedSeed]:
    """Return the published results. Raises InputError if the file is missing."""
    try:
        experiments = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        cure = "It is a part of the package: install evolve again."
        raise InputError(str(path), "the list of published results", str(error), cure) from None
    return [
        PublishedSeed(name, parse(Config, found["settings"]), each["seed"], each["generations"], each["digest"])
        for name, found in experiments.items()
        for each in found["results"]
    ]


def compare_with_published(run: Stored, published: Sequence[PublishedSeed]) -> Verdict:
    """Return whether a file has the digest that is published for its experiment and seed.

    The engine may be another one, since two engines can play the same episodes. A run that was continued is compared
    at the generation with which the published run ended.

    Args:
        run: A run file with a complete generation, or a champion file.
        published: The published results, see `read_published`.

    Raises:
        InputError: The experiment is not published, or not with this seed.
    """
    config = load_config(run.header.config, str(run.path))
    same = [each for each in published if not each.differences(config)]
    verdicts = [_verdict(run, config, each) for each in same if each.seed == run.header.seed]
    if not verdicts:
        raise _not_published(run, config, published, same)
    return next((verdict for verdict in verdicts if verdict.equal), verdicts[0])


def _verdict(run: Stored, config: Config, published: PublishedSeed) -> Verdict:
    name = f"seed {published.seed} of the published experiment {published.experiment}"
    length = pluralize(published.num_generations, "generation")
    engines = published.config.env.engine, config.env.engine
    found = Verdict(
        False,
        "",
        sides=(Side(name), Side(str(run.path))),
        configuration=((ENGINE, *engines),) if engines[0] != engines[1] else (),
        manifests=(as_texts(flatten(run.header.manifest)),),
    )
    digest = _digest_after(run, published.num_generations)
    if digest is None:
        summary = f"{name} has {length}, and this file {run.num_generations:,}"
        return replace(found, summary=summary, cause="configuration", why=_cure_of_length(run, published), what="shape")
    if digest == published.digest:
        more = "the first " if run.num_generations > published.num_generations else ""
        return replace(found, equal=True, summary=f"{name}, {more}{length}, digest {digest}")
    summary = f"{name} has digest {published.digest} after {length}, and this file {digest}"
    cause, why = _explain(run, config, published)
    return replace(found, summary=summary, cause=cause, why=why, what="digest")


def _digest_after(run: Stored, num_generations: int) -> str | None:
    """Return the digest that a run had after a number of generations; None if the file does not hold it."""
    if run.num_generations == num_generations:
        return run.digest
    if isinstance(run, StoredRun) and run.num_generations > num_generations:
        return run.records[num_generations - 1].digest.decode()
    return None


def _cure_of_length(run: Stored, published: PublishedSeed) -> str:
    if run.num_generations > published.num_generations:
        return "a champion file holds the digest of its last generation only; the run file holds all of them"
    return f"only the last digest is published, so continue the run to {published.num_generations:,} generations first"


def _explain(run: Stored, config: Config, published: PublishedSeed) -> tuple[Cause, str]:
    """Return the likeliest cause of another digest, as far as settings and versions tell."""
    engine = config.env.engine
    made = _made_with(run)
    if engine != published.config.env.engine:
        return "environment", f"{engine} and {published.config.env.engine} need not play the same episodes; {made}"
    if engine != "exact":
        theirs = f"the environments are those of another library ({engine}), whose results may differ between its "
        return "environment", f"{theirs}versions and between processors; {made}"
    if not is_portable(config):
        return (
            "strategy",
            f"the strategy's linear algebra is not portable, so its genomes follow from the machine; {made}",
        )
    always = "exact environments and a portable strategy have the same digest on every machine, so evolve differs, "
    return "log", f"{always}or the file was changed: python -m evolve.verify --full finds out; {made}"


def _made_with(run: Stored) -> str:
    """Return the processor and the versions that a file names; the published results name none."""
    manifest = as_texts(flatten(run.header.manifest))
    packages = [key for key in manifest if key.startswith("packages.")]
    versions = [f"{key.removeprefix('packages.')} {manifest[key]}" for key in ("evolve", *packages) if key in manifest]
    return sanitize(
        f"this file was made on {manifest.get('cpu', 'an unknown processor')} by {', '.join(versions)}", 800
    )


def _not_published(
    run: Stored, config: Config, published: Sequence[PublishedSeed], same: Sequence[PublishedSeed]
) -> InputError:
    """Return the refusal of a file whose seed is not among those of the `same` experiment, or of another experiment."""
    cure = "To compare it with another run, name two files: python -m evolve.verify A.h5 B.h5."
    if same:
        seeds = ", ".join(str(each.seed) for each in same)
        expected = f"a published seed of {same[0].experiment} ({seeds})"
        return InputError(str(run.path), expected, f"seed {run.header.seed}", cure)
    nearest = min(published, key=lambda each: (each.config.env.id != config.env.id, len(each.differences(config))))
    key, theirs, ours = nearest.differences(config)[0]
    expected = f"a run of a published experiment ({', '.join(dict.fromkeys(each.experiment for each in published))})"
    came = f"another experiment; the nearest is {nearest.experiment}, in which {key} is {theirs!r} and not {ours!r}"
    return InputError(str(run.path), expected, came, cure)
