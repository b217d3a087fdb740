"""Any change to a run file is found by each of the three ways to verify it, with the right cause."""

import json
import shutil

import pytest
from tampering import SPOILED, spoil


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("way", ["one", "two", "full"])
def test_whatever_is_changed_is_found(whole, tmp_path, call, how, way):
    path = tmp_path / "changed.h5"
    shutil.copy(whole, path)
    spoil(path, how)
    done = call("verify", path, "--json", *{"one": [], "two": [whole], "full": ["--full"]}[way])
    assert done.err == ""
    # A file without the evaluation equals one with it. Only the whole run has the champions of earlier validations.
    # A file may have fewer held-out episodes than another one, but not fewer than its experiment asks for.
    if (how, way) in (
        ("held-out evaluation", "two"),
        ("number of held-out episodes", "two"),
        ("validation return", "one"),
    ):
        assert done.code == 0
        return
    assert done.code == 1, done.out
    expected = {"seed": "random stream", "configuration": "network"}
    if way == "two":
        expected = dict.fromkeys(expected, "configuration")
    if how == "normalizer" and way == "one":
        expected[how] = "network"  # which gets other numbers for the same observations
    if how in ("held-out return", "validation return", "spaces"):
        expected[how] = "log" if way == "two" else "environment"
    found = json.loads(done.out)
    assert found["cause"] == expected.get(how, "log"), done.out
    assert ("of each file tells which one" in found["why"]) == (way == "two" and found["cause"] == "log")
