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
    if (how, way) == ("held-out evaluation", "two"):  # a file without the evaluation equals one with it
        assert done.code == 0
        return
    assert done.code == 1, done.out
    expected = {"seed": "configuration" if way == "two" else "random stream", "held-out return": "environment",
                "configuration": "configuration" if way == "two" else "network"}  # fmt: skip
    if how == "genome fingerprint" and way == "full":
        expected[how] = "random stream"  # the genomes that are asked for are not those of the log
    if how in ("genome fingerprint", "initial genome's fingerprint") and way in ("two", "full"):
        expected[how] = "random stream"
    if (how, way) == ("held-out return", "two"):
        expected[how] = "log"
    assert json.loads(done.out)["cause"] == expected.get(how, "log"), done.out
