"""Names of earlier versions: kinds and options are still found by them, and have the present names from then on."""

import pytest

from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES


@pytest.mark.parametrize(
    ("kinds", "old", "new"),
    [
        (STRATEGIES, {"name": "mk2"}, {"name": "umda"}),
        (STRATEGIES, {"name": "mk2", "rarest": 0.1}, {"name": "umda", "min_probability": 0.1}),
        (NETWORKS, {"name": "prunable-mlp", "birth_pruning": 0.5}, {"name": "binary-mask-mlp", "init_sparsity": 0.5}),
        *(
            (NETWORKS, {"name": name, "birth_scale": 0.5}, {"name": name, "init_scale": 0.5})
            for name in ("hebbian-dag", "dag", "mlp", "elman", "plastic-mlp")
        ),
        *((NETWORKS, {"name": name, "birth_pruning": 0.5}, {"name": name, "init_sparsity": 0.5}) for name in NETWORKS),
    ],
)
def test_old_names_mean_the_same(kinds, old, new):
    assert kinds.parse(old) == kinds.parse(new)
    assert kinds.parse(old).name == new["name"]
    assert kinds.kind(old) is kinds.kind(new)


def test_what_is_wrong_is_named_as_it_is_called_now():
    with pytest.raises(InputError, match=r"network\.init_scale"):
        NETWORKS.parse({"name": "mlp", "birth_scale": -1.0})


@pytest.mark.parametrize(
    "table",
    [
        {"name": "mlp", "birth_scale": 1.0, "init_scale": 1.0},  # one of them is too many
        {"name": "hebbian-lstm", "birth_scale": 1.0},  # which never had one
        {"name": "mlp", "rarest": 0.1},  # a strategy's
    ],
)
def test_no_other_key_is_accepted(table):
    (wrong,) = set(table) - {"name", "init_scale"}
    with pytest.raises(InputError, match=rf"network\.{wrong}"):
        NETWORKS.parse(table)
