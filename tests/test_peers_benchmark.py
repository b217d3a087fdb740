"""Evolution against its peers: each runs alone, missing libraries are named, and the table compares digests."""

import json
import os
from argparse import Namespace

import pytest
from conftest import ROOT

from evolve.numerics import native


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import peers

    return peers


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_evolve_trains_and_is_judged(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)  # a child of its own is held to its processors
    words = ("--child", "evolve-exact", 1)
    results = []
    for name in ("one.json", "two.json"):
        code, out, err = bench("peers", *words, tmp_path / name, "--seeds", 1, "--steps", 6000, "--episodes", 2)
        assert code == 0, out + err
        results.append(json.loads((tmp_path / name).read_text()))
    assert results[0]["steps"] >= 6000
    assert results[0]["seconds"] > 0
    assert results[0]["digest"] == results[1]["digest"]


def test_missing_peers_are_named(bench, absent, tmp_path):
    absent("evotorch", "neat", "evosax")
    code, out, err = bench("peers", "--peers", "evotorch", "neat", "evosax", "-o", tmp_path)
    assert (code, out) == (0, "")
    assert [line.split(" needs ")[0] for line in err.splitlines()] == ["evotorch", "neat", "evosax"]
    assert err.count("requirements-peers.txt") == 3
    code, _, err = bench("peers", "--show", "-o", tmp_path)
    assert code == 1
    assert err.startswith(f"{tmp_path}: ")


def run(workers, digest, seconds, aim=None, seed=1):
    machine = {"cpu": "one", "cores used": workers, "load": 0.5}
    compiled = {"steps": 500, "seconds": seconds - 0.5}
    result = {"steps": 1000, "seconds": seconds, "aim": aim, "compiled": compiled, "digest": digest}
    about = {"asked": {"seed": seed}, "machine": machine, "versions": {"neat-python": "2"}, "date": "2026-01-02"}
    return about | result


def test_the_table_compares_digests(peers, tmp_path, capsys):
    (tmp_path / "neat").mkdir()
    runs = [run(1, "a", 2.0, {"steps": 400, "seconds": 1.0}), run(1, "a", 4.0), run(2, "b", 1.0), run(2, "c", 1.0)]
    for number, kept in enumerate(runs):
        (tmp_path / "neat" / f"{number}.json").write_text(json.dumps(kept))
    peers.show(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    count = peers.lines_of("neat_peer")
    assert lines[2].split(" | ")[1:] == [
        "375, 1,000",
        "1,000, 1,000",
        "1.0",
        "400",
        str(count),
        "1",
        "yes",
        "no",
        "no |",
    ]
    (tmp_path / "neat" / "0.json").write_text(json.dumps(run(1, "a", 2.0)))
    peers.show(tmp_path)
    assert capsys.readouterr().out.splitlines()[2].split(" | ")[3:5] == ["not reached", "not reached"]
    assert lines[4] == "- one, load 0.5, 2026-01-02."


def test_a_row_takes_all_seeds_together(peers):
    aims = ({"steps": 400, "seconds": 1.0}, {"steps": 600, "seconds": 2.0}, None)
    runs = [run(1, f"digest {seed}", 1.0, aim, seed) for seed, aim in enumerate(aims, 1) for _ in range(2)]
    share = "(2 of 3 seeds)"
    expected = ["1,000, not measured", f"1.5 {share}", f"500 {share}", str(peers.lines_of("neat_peer")), "1, 2, 3"]
    assert peers.row("neat", runs)[2:] == [*expected, "yes", "not measured", "not measured"]
    runs += [run(2, f"digest {seed}", 1.0, None, seed) for seed in (1, 2, 3)]
    assert peers.row("neat", runs)[7:] == ["yes", "not measured", "yes"]
    runs += [run(2, "another digest", 1.0, None, 3)]
    assert peers.row("neat", runs)[7:] == ["yes", "not measured", "no"]


def test_lines_of_code_are_counted(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    (tmp_path / "some_peer.py").write_text('"""What it is."""\n\nx = 1\n# why\n\nprint(x)\n')
    (tmp_path / "some_peer.ini").write_text("[a]\n\nb = 1\n")
    assert peers.lines_of("some_peer") == 5


def test_a_failed_peer_is_reported(peers, monkeypatch, tmp_path):
    (tmp_path / "child.py").write_text("raise SystemExit('out of luck')")
    monkeypatch.setattr(peers, "SCRIPT", tmp_path / "child.py")
    asked = Namespace(steps=1, episodes=1, limit=60.0)
    assert peers.start("neat", 1, 1, asked) == {"failed": "exit code 1: out of luck"}
