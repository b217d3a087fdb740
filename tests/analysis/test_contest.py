"""The contest: its work is fixed, machines must reproduce the known digests, and wrong files are refused."""

import importlib
import itertools
import json
import re
import sys
import sysconfig

import pytest
from conftest import ROOT, finished
from processors import MASKED, NEHALEM, build_package, nehalem, x86

from evolve.analysis import contest
from evolve.analysis.contest import ranking, results, session
from evolve.cluster import Coordinator, Transport
from evolve.errors import InputError
from evolve.numerics import native
from evolve.training import make_rollout

built = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
TRIAL = contest.SIZES["trial"]


def alone():
    return Coordinator(Transport(), make_rollout)


def test_another_work_needs_another_version():
    expected = contest.golden()
    assert contest.definition() == expected["definition"], "raise VERSION, and make golden.json anew"
    assert expected["contest"] == contest.VERSION
    assert list(expected["sizes"]) == list(contest.SIZES)
    assert all(list(legs) == list(contest.LEGS) for legs in expected["sizes"].values())


def test_the_walker_is_the_benchmark_of_2020():
    from evolve.config import read_file

    config = contest.timed_experiment("walker", contest.SIZES["large"], "auto").config
    preset = read_file(ROOT / "experiments" / "script-2020.toml")
    for section in ("population", "episodes", "generations", "env", "network", "strategy"):
        expected = preset[section]
        found = getattr(config, section)
        if isinstance(expected, dict):
            found = found.table() if hasattr(found, "table") else found.model_dump()
            assert {name: found[name] for name in expected} == expected
        else:
            assert found == expected
    small = contest.timed_experiment("walker", contest.SIZES["small"], "auto").config
    assert (small.population, small.episodes, small.generations) == (138, 8, 5)


@built
@pytest.mark.parametrize("size", contest.SIZES)
def test_the_engine_plays_the_known_digests(size):
    assert session.validate(alone(), contest.SIZES[size], "native") == contest.known_digests(size)


def test_the_array_reference_agrees():
    for leg in ("pole", "short"):
        found = session.play(contest.known_experiment(leg, "numpy"), alone(), TRIAL.known_seed)
        assert found.work.digest == contest.known_digests("trial")[leg]


@pytest.mark.slow
def test_the_array_reference_makes_the_golden_file(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert json.loads(json.dumps(importlib.import_module("contest").make_golden())) == contest.golden()


@pytest.mark.slow
@pytest.mark.usefixtures("any_device")
def test_a_device_agrees():
    assert session.validate(alone(), TRIAL, "cupy") == contest.known_digests("trial")


@x86
@built
def test_an_older_processor_agrees(command):
    done = command("", "contest", "--validate", "--size", "trial", module="evolve", **MASKED).ok()
    assert "validated" in done.out


def validate_with(words, folder, **env):
    """Play the known runs with the package in a folder; return the exit code and the output."""
    words = [*words, sys.executable, "-m", "evolve", "contest", "--validate", "--size", "trial"]
    done = finished(words, folder, PYTHONPATH=str(folder), **env)
    return done.code, done.out + done.err


@pytest.mark.slow
@nehalem
@built
def test_an_emulated_old_processor_agrees():
    code, said = validate_with(NEHALEM, ROOT, OPENBLAS_CORETYPE="Nehalem")
    assert code == 0, said


@pytest.mark.slow
@x86
@pytest.mark.parametrize("flags", [("-ffp-contract=fast", "-mfma"), ("-ffast-math",)])
@pytest.mark.cold
def test_a_build_that_contracts_or_reorders_is_refused(flags, tmp_path):
    build_package(tmp_path, "gcc", sysconfig.get_config_var("EXT_SUFFIX"), flags)
    code, said = validate_with([], tmp_path)
    assert code == 1
    assert "different work: " in said
    assert "generation 0, candidate " in said
    assert "the same genome" in said


def legs_with(changed, tags):
    """Return the known legs of the smallest contest, with other tags of one leg."""

    def played(digest, tags):
        work = results.LegDigest(digest=digest, marks=(digest,), every=1, steps=1, timed_steps=1, episodes=1)
        return session.PlayedLeg(work, tuple(tags), 1.0, 1.0)

    known = contest.golden()["sizes"]["trial"]
    return {leg: played(one["digest"], one["tags"]) for leg, one in known.items()} | {changed: played("another", tags)}


def test_the_first_difference_is_named():
    played = session.play(contest.known_experiment("short", "auto"), alone(), TRIAL.known_seed, tagged=True)
    all_legs = dict.fromkeys(contest.LEGS, played)
    assert session.difference("trial", all_legs).startswith("pole, generation 0, candidate 0: ")
    tags = list(contest.golden()["sizes"]["trial"]["short"]["tags"])
    # The first half of a candidate's tag stands for its genome, the second half for its episodes.
    for place, what in ((session.TAG_DIGITS // 2, "the same genome"), (0, "another genome")):
        at = 7 * session.TAG_DIGITS + place
        tags[1] = f"{tags[1][:at]}?{tags[1][at + 1 :]}"
        found = session.difference("trial", legs_with("short", tags))
        assert found.startswith("short, generation 1, candidate 7: ")
        assert found.endswith(what)


def test_when_times_agree():
    assert not results.repeats_suffice([10.0, 10.0], 8)
    assert results.repeats_suffice([10.0, 10.3, 10.2], 8)
    assert not results.repeats_suffice([10.0, 10.4, 10.2], 8)
    assert results.repeats_suffice([20.0, 10.4, 10.2, 10.3], 8)
    assert results.repeats_suffice([float(n + 1) for n in range(8)], 8)
    assert results.score([20.0, 10.4, 10.2, 10.3]) == pytest.approx(10.35)
    assert results.spread([10.0, 11.0]) == pytest.approx(0.1)


def leg(name):
    marks = [f"{name}-{n}" for n in range(4)]
    return {"digest": f"{name}-digest", "marks": marks, "every": 2, "steps": 100, "timed_steps": 80, "episodes": 10}


def contents(times, name="a", version=contest.VERSION, **changes):
    """Return what a file of a machine holds; times: of its repeats, by number of workers."""
    legs = contest.LEGS_OF_VERSION[version]
    rows = [
        {
            "workers": workers,
            "hosts": [workers],
            "mpi": "none",
            "backend": "native",
            "device": "",
            "known": dict(contest.known_digests("small", version)),
            "legs": {each: leg(each) for each in legs},
            "repeats": [
                {"seconds": s, "passes": 1, "legs": {each: s / len(legs) for each in legs}, "playing": workers}
                for s in seconds
            ],
        }
        for workers, seconds in times.items()
    ]
    return {
        "contest": version,
        "size": "small",
        "name": name,
        "date": "2026-11-22T00:00:00+00:00",
        "verdict": "validated",
        "line": "",
        "price": {"currency": "$", "hour": 3.6},
        "load_before": [0.5, 0.5, 0.5],
        "system": {"cores": 2},
        "rows": rows,
    } | changes


def signed(path, what):
    path.write_text(json.dumps(what | {"signature": results.signature(what)}))
    return path


def test_ratios_scaling_and_costs(tmp_path):
    slow = signed(tmp_path / "slow.json", contents({1: [80, 82, 84], 2: [40, 41, 42]}))
    fast = signed(tmp_path / "fast.json", contents({1: [40, 41, 42], 4: [20, 20.5, 21]}, "b", price=None))
    compared = ranking.rank([slow, fast])
    assert compared.machines == ["a", "b"]
    one, two, three, four = compared.rows
    assert [row.ratio for row in compared.rows] == pytest.approx([2, 1, 1, 0.5])
    assert (one.speedup, two.speedup, four.speedup) == pytest.approx((1, 2, 2))
    assert [row.price and row.price.cost(row.measured.seconds) for row in (one, two, three)] == [
        pytest.approx(0.082), pytest.approx(0.041), None]  # fmt: skip
    assert two.interval is None
    low, high = four.interval
    assert 0.45 < low < 0.5 < high < 0.55
    assert low * high == pytest.approx(0.25)
    assert two.price.cost_in_words(two.measured.seconds) == "$0.0410"
    assert two.price.cost_in_words(0) == "$0"


def test_the_figure_tells_devices_apart_and_mixes_no_currencies(tmp_path):
    pytest.importorskip("matplotlib")
    paths = []
    for name, currency in (("a", "$"), ("b", "€")):
        found = contents({1: [40, 41, 42], 2: [20, 20.5, 21]}, name, price={"currency": currency, "hour": 1.0})
        found["rows"] += [row | {"device": "GPU", "backend": "cupy"} for row in found["rows"]]
        paths.append(signed(tmp_path / f"{name}.json", found))
    compared = ranking.rank(paths)
    assert [row.measured.title for row in compared.rows_of("a")] == ["1 worker", "2 workers", "GPU", "GPU, 2 workers"]
    top, bottom = ranking.draw(compared).subfigs
    stars = [line for line in top.axes[0].lines if line.get_marker() == "*"]
    assert [line.get_xdata().tolist() for line in stars] == [[1, 2], [1, 2]]
    assert [line.get_label() for line in stars] == ["a:\nGPU", "b:\nGPU"]
    assert len({line.get_color() for line in stars}) == 2
    assert len(bottom.axes) == 1
    assert len(ranking.draw(ranking.rank(paths[:1])).subfigs[1].axes) == 2


def test_a_long_name_without_spaces_keeps_its_ends_in_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    path = signed(tmp_path / "a.json", contents({1: [40, 41, 42]}, f"first-{'x' * 90}-last"))
    label = ranking.draw(ranking.rank([path])).subfigs[0].axes[0].get_legend_handles_labels()[1][0]
    assert (label[:6], label[-5:]) == ("first-", "-last")


def test_the_figure_has_space_for_many_machines_and_workers(tmp_path):
    pytest.importorskip("matplotlib")
    workers = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
    times = {n: [40 / n, 41 / n, 42 / n] for n in workers}
    names = [*"abcdefgh", "with a name " * 6]
    paths = [signed(tmp_path / f"{n}.json", contents(times, name)) for n, name in enumerate(names)]
    figure = ranking.draw(ranking.rank(paths))
    time, speed = figure.subfigs[0].axes
    assert len({(line.get_color(), line.get_marker()) for line in speed.lines}) == len(names) + 1  # and the ideal
    figure.draw_without_rendering()
    for axis in (time.xaxis, figure.subfigs[1].axes[0].yaxis):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert len(boxes) > 5
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_machines_of_equal_names_stay_apart(tmp_path):
    names = ["a", "a", "a #1"]
    paths = [signed(tmp_path / f"{n}.json", contents({1: [40, 41, 42]}, name)) for n, name in enumerate(names)]
    assert ranking.rank(paths).machines == ["a #2", "a #3", "a #1"]


def test_a_machine_whose_name_begins_with_an_underscore_is_in_the_legend(tmp_path):
    pytest.importorskip("matplotlib")
    found = contents({1: [40, 41, 42]}, "_a")
    figure = ranking.draw(ranking.rank([signed(tmp_path / "a.json", found)]))
    assert "_a" in figure.subfigs[0].axes[0].get_legend_handles_labels()[1][0]


def refused(path, words):
    with pytest.raises(InputError, match=words):
        ranking.rank([path])


def test_files_are_refused(tmp_path):
    good = contents({1: [40, 41, 42]})
    path = signed(tmp_path / "a.json", good)
    assert ranking.rank([path]).rows[0].verdict == "validated"
    path.write_text(path.read_text().replace("42", "32"))
    refused(path, "was edited")
    refused(signed(path, good | {"contest": 0}), "expected a file of contest 1 or 2, got one of contest 0")
    refused(signed(path, good | {"more": 1}), "there is no setting more")
    refused(signed(path, good | {"rows": []}), "rows: expected a list of at least 1")
    refused(signed(path, good | {"size": "huge"}), "a whole contest")
    refused(signed(path, contents({0: [40, 41, 42]})), "rows.0.workers: expected at least 1, got 0")
    refused(signed(path, contents({1: [40, 0, 42]})), "rows.0.repeats.1.seconds: expected more than 1e-06, got 0")
    for price in ({"currency": "$", "hour": -1.0}, {"currency": "$", "hour": 1e300}, {"currency": "\x1b", "hour": 1.0}):
        refused(
            signed(path, good | {"price": price}),
            r"price.(currency: expected text that matches .* got \\x1b|hour: expected (at least|less than))",
        )
    lying = contents({1: [40, 41, 42]})
    lying["rows"][0]["known"]["pole"] = "0" * 64
    refused(signed(path, lying), "not the known digests")
    path.write_text("{")
    refused(path, "a JSON file that evolve contest wrote")
    path.unlink()
    refused(path, "a file that can be read")


def test_unequal_work_is_not_compared(tmp_path):
    first = signed(tmp_path / "a.json", contents({1: [40, 41, 42]}))
    other = contents({1: [40, 41, 42]})
    swing = other["rows"][0]["legs"]["swing"]
    swing["digest"] = "another"
    swing["marks"][2:] = ["?", "?"]
    second = signed(tmp_path / "b.json", other)
    with pytest.raises(InputError, match=r"\(swing, generations 4 to 5\)"):
        ranking.rank([first, second])
    swing["marks"] = [*contents({1: [40, 41, 42]})["rows"][0]["legs"]["swing"]["marks"][:-1], "?"]
    first_of_last = 2 * (len(swing["marks"]) - 1)
    with pytest.raises(InputError, match=rf"\(swing, generation {first_of_last} or later\)"):
        ranking.rank([first, signed(tmp_path / "c.json", other)])
    medium = contents({1: [40, 41, 42]}, size="medium")
    medium["rows"][0]["known"] = {}
    with pytest.raises(InputError, match="expected size small"):
        ranking.rank([first, signed(second, medium)])


def test_versions_are_not_mixed(tmp_path):
    old = contents({1: [40, 41, 42]}, version=1)
    for leg_of_old in old["rows"][0]["legs"].values():
        del leg_of_old["timed_steps"]
    first = signed(tmp_path / "a.json", old)
    compared = ranking.rank([first])
    assert (compared.version, compared.rows[0].verdict) == (1, "validated")
    assert ranking.benchmark_2020(results.read(first), compared.rows[0].measured) == ""
    second = signed(tmp_path / "b.json", contents({1: [40, 41, 42]}))
    assert ranking.rank([second]).version == 2
    with pytest.raises(InputError, match=r"contest 1, as .*a\.json is, got one of contest 2"):
        ranking.rank([first, second])
    refused(signed(second, contents({1: [40, 41, 42]}) | {"contest": 1}), "a whole contest")


@pytest.mark.parametrize(("size", "said"), [("small", "would take about"), ("large", "took"), ("trial", None)])
def test_the_benchmark_of_2020_is_extrapolated_unless_it_was_played(size, said, tmp_path):
    changed = contents({2: [60, 66, 72]}, size=size)
    changed["rows"][0]["known"] = {}
    found = results.read(signed(tmp_path / "a.json", changed))
    whole = ranking.benchmark_2020(found, found.rows[0])
    if said is None:
        assert not whole
        return
    steps = 100 if size == "large" else ranking.STEPS_OF_2020
    assert f"200 generations {said} {11 / 80 * steps:,.0f} s here" in whole
    assert ("extrapolation from 4 generations" in whole) == (size == "small")
    assert re.findall(r"[\d,]+ s \(\d+", whole)[-2:] == ["3,491 s (24", "6,666 s (64"]


def test_a_machine_that_was_not_validated_is_unverified(tmp_path):
    unseen = contents({1: [40, 41, 42]})
    unseen["rows"][0]["known"] = {}
    assert ranking.rank([signed(tmp_path / "a.json", unseen)]).rows[0].verdict == "unverified"


@pytest.mark.parametrize(("text", "hour"), [("1.28/h", 1.28), ("$0.5/h", 0.5), ("EUR3/h", 3.0)])
def test_prices(text, hour):
    assert results.read_price(text).hour == hour


@pytest.mark.parametrize("text", ["1.28", "-1/h", "1,28/h", "1/d", "x/h", "\udcff1/h"])
def test_bad_prices(text):
    with pytest.raises(InputError, match="--price"):
        results.read_price(text)
