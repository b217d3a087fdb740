"""Policies: batches, traces and weights within an episode, and work without the environment or Gymnasium."""

import copy
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import h5py
import numpy as np
import pytest
from conftest import ROOT, finished, without
from gymnasium import spaces

import evolve
from evolve.analysis.policy import Policy
from evolve.config import Config
from evolve.environments import Spaces
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.numerics.streams import Purpose, Stream
from evolve.training.experiment import prepare_policy

N, STEPS = 3, 7


def test_the_pair_of_a_reset_is_no_observation():
    policy = policy_of("mlp")
    with pytest.raises(
        InputError, match=r"got a pair of an observation and info\. Pass the first of both: observation, info"
    ):
        policy((np.zeros(4), {}))


BOX = spaces.Box(-np.inf, np.inf, (4,), np.float32)
TUPLE = spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 255, (2, 2), np.uint8)))
DICT = spaces.Dict(a=spaces.MultiBinary(2), b=TUPLE)


def policy_of(network, normalized=False, observation=BOX, action=None):
    table = {"env": {"id": "nowhere:Gone-v0"}, "network": {"name": network} if isinstance(network, str) else network}
    known = Spaces(observation, action or spaces.Box(-2, 2, (2,), np.float32))
    experiment = prepare_policy(Config.model_validate(table), known)
    genome = experiment.network.init(Stream(7, Purpose.INIT, 0, 0))
    O = experiment.network.observation_size
    normalizer = np.stack([np.full(O, 0.25), np.full(O, 1.5)]).astype(np.float32) if normalized else None
    return Policy(experiment, genome, normalizer)


def observed(*shape):
    return np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_each_row_of_a_batch_has_the_bits_of_a_policy_of_its_own(name, normalized):
    table = {"name": name, **({"plasticity": 0.1, "neuromodulated": True} if name == "hebbian-dag" else {})}
    policy = policy_of(table, normalized)
    seen = observed(STEPS, N, 4)
    for again in range(2):  # another episode has nothing of the first one
        policy.reset(seed=5 + again, batch=N)
        actions = [policy(rows) for rows in seen]
        kept = policy.weights, policy.traces
        for row in range(N):
            alone = policy_of(table, normalized)
            alone.reset(seed=5 + again + row)
            assert [alone(step[row]).tobytes() for step in seen] == [step[row].tobytes() for step in actions]
            for ours, single in zip(kept, (alone.weights, alone.traces), strict=True):
                assert {k: v[row].tobytes() for k, v in ours.items()} == {k: v.tobytes() for k, v in single.items()}


def test_a_policy_may_be_made_of_weights():
    policy, seen = policy_of("mlp"), observed(4)
    weights = policy.genome.weights
    for given in (weights, weights[0], weights[0].tolist()):
        assert Policy(policy.experiment, given).outputs(seen).tobytes() == policy.outputs(seen).tobytes()
    with pytest.raises(InputError, match=r"genome: expected \d+ weights for mlp, got 3"):
        Policy(policy.experiment, weights[0, :3])
    normalized = policy_of("mlp", normalized=True)
    for given in (normalized.normalizer.astype(np.float64), normalized.normalizer.tolist()):
        found = Policy(policy.experiment, weights, given)
        assert found.normalizer.dtype == np.float32
        assert found.outputs(seen).tobytes() == normalized.outputs(seen).tobytes()
    config = policy.experiment.config.model_copy(update={"normalize_observations": True})
    for normalizer, got in ((None, "None"), (np.zeros((2, 3), np.float32), r"an array of shape \[2, 3\]")):
        with pytest.raises(InputError, match=rf"normalizer: expected an array of shape \[2, 4\], got {got}\. A policy"):
            Policy(replace(policy.experiment, config=config), weights, normalizer)


def test_a_configuration_is_not_an_experiment():
    policy = policy_of("mlp")
    with pytest.raises(InputError, match=r"^experiment: expected the experiment .*run\.experiment, got a Config"):
        Policy(policy.experiment.config, policy.genome)


def test_the_first_batch_decides_how_many_rows_an_episode_has():
    policy = policy_of("elman")
    seen = observed(2, N, 4)
    first = policy.outputs(seen[0])
    second = policy.outputs(seen[1])
    for wrong in (seen[0][0], seen[0][:2]):
        with pytest.raises(InputError, match="reset"):
            policy.outputs(wrong)
    policy.reset(batch=N)
    assert policy.outputs(seen[0]).tobytes() == first.tobytes()
    assert policy.outputs(seen[1]).tobytes() == second.tobytes()
    with pytest.raises(InputError, match=r"a batch of 3 observations of .*reset\(batch=2\)"):
        policy.outputs(seen[0][:2])
    policy.reset()
    assert policy.outputs(seen[0][1]).tobytes() == first[1].tobytes()
    with pytest.raises(InputError, match="began with a single observation"):
        policy.outputs(seen[0])


def test_a_network_without_memory_takes_any_number_of_rows():
    policy = policy_of("mlp", normalized=True)
    many = observed(700, 4)
    outputs = policy.outputs(many)
    assert outputs.shape == (700, 2)
    assert policy.weights["W_0"].shape == (700, 5, 16)
    assert policy.outputs(many[699]).tobytes() == outputs[699].tobytes()
    assert policy.outputs(many[300:302]).tobytes() == outputs[300:302].tobytes()
    assert policy(many).shape == policy.decode(outputs).shape == (700, 2)
    assert policy.traces == {}


@pytest.mark.parametrize("rows", [None, 3])
def test_threads_share_a_policy_without_memory(rows):
    policy = policy_of("mlp", normalized=True)
    observations = observed(2000, 4) if rows is None else observed(2000, rows, 4)
    alone = [policy(observation).tolist() for observation in observations]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads interrupt each other within calls
    try:
        with ThreadPoolExecutor(4) as threads:
            together = [action.tolist() for action in threads.map(policy, observations)]
    finally:
        sys.setswitchinterval(interval)
    assert together == alone


def test_seeds_of_rows_follow_gymnasium_or_a_list():
    policy = policy_of("plastic-mlp")
    seen = observed(N, 4)

    def played(**how):
        policy.reset(**how)
        return policy.outputs(seen).tobytes()

    assert played(seed=4, batch=N) == played(seed=[4, 5, 6]) == played(seed=4)
    assert played(seed=[4, 5, 7]) != played(seed=[4, 5, 6])
    for wrong in (
        {"seed": [1, 2], "batch": 3},
        {"seed": []},
        {"seed": -1},
        {"seed": [1, -1]},
        {"batch": 0},
        {"batch": 10**12},
        {"batch": 1.5},
        {"seed": 2**63 - 1, "batch": 2},
    ):
        with pytest.raises(InputError):
            policy.reset(**wrong)
    assert played(seed=2**63 - N, batch=N)
    policy.reset(seed=2**63 - 1)
    with pytest.raises(InputError, match=r"seed: expected at most 2\*\*63 - 3 for 3 rows"):
        policy.outputs(seen)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("rows", [[2, 0], np.array([True, False, True])], ids=["numbers", "booleans"])
def test_some_rows_of_a_batch_begin_an_episode(name, rows):
    policy, observations = policy_of(name), observed(4, 3, 4)
    policy.reset(seed=5, batch=3)
    before = [policy.outputs(seen) for seen in observations]
    policy.reset(seed=5, batch=3)
    policy.outputs(observations[0])
    policy.reset(seed=9, rows=rows)
    after = [policy.outputs(seen) for seen in observations[1:]]
    for row in (0, 2):
        alone = policy_of(name)
        alone.reset(seed=9 + row)
        assert [list(seen[row]) for seen in after] == [list(alone.outputs(seen[row])) for seen in observations[1:]]
    assert [list(seen[1]) for seen in after] == [list(seen[1]) for seen in before[1:]]


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_connection_can_be_cut_by_the_mask(name):
    policy, seen = policy_of(name), observed(4)
    whole = policy.outputs(seen)
    policy.genome.mask[:] = False
    policy.reset()
    assert policy.outputs(seen).tolist() != whole.tolist()
    assert not any(part.any() for part in policy.weights.values()) or name in ("hebbian-lstm", "plastic-mlp")
    policy.genome.mask[:] = True
    policy.reset()
    assert name in ("hebbian-dag", "binary-mask-mlp") or policy.outputs(seen).tolist() == whole.tolist()


def test_rows_that_are_no_rows_of_a_batch_are_refused():
    policy = policy_of("elman")
    with pytest.raises(InputError, match=r"rows: expected rows of a batch that has begun, got a single observation"):
        policy.reset(rows=[0])
    policy.reset(batch=2)
    for wrong in ([2], [-1], [0, 0], [True], [0.5], 1, "0"):
        with pytest.raises(InputError, match="rows: expected numbers from 0 to 1, or 2 booleans"):
            policy.reset(rows=wrong)
    with pytest.raises(InputError, match="seed: expected a seed for each of 2 rows, or one number, got 1 seeds"):
        policy.reset(seed=[3], rows=[0, 1])
    with pytest.raises(InputError, match="rows: expected rows without batch="):
        policy.reset(batch=3, rows=[0])
    policy.reset(rows=[])
    policy.reset(seed=[3, 4], rows=np.ones(2, bool))


def test_a_reset_that_is_refused_changes_nothing():
    policy, seen = policy_of("elman"), observed(2, 4)
    first, second = (policy.outputs(row).tobytes() for row in seen)
    policy.reset()
    assert policy.outputs(seen[0]).tobytes() == first
    with pytest.raises(InputError, match="batch: expected rows whose networks fit"):
        policy.reset(batch=10**12)
    assert policy.outputs(seen[1]).tobytes() == second


def test_discrete_actions_of_a_batch_are_an_array():
    policy = policy_of("mlp", action=spaces.Discrete(2, start=3))
    actions = policy(observed(N, 4))
    assert actions.shape == (N,)
    assert actions.tolist() == [policy(row) for row in observed(N, 4)]
    assert set(actions.tolist()) <= {3, 4}


def test_actions_of_a_dict_are_a_dictionary_and_in_a_batch_a_dictionary_of_arrays():
    space = spaces.Dict(jump=spaces.Discrete(2), move=spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32),)))
    policy = policy_of("mlp", action=space)
    seen = observed(N, 4)
    batch, single = policy(seen), [policy(row) for row in seen]
    assert all(isinstance(one["jump"], int) and one["move"][0].shape == (2,) for one in single)
    assert batch["jump"].tolist() == [one["jump"] for one in single]
    assert batch["move"][0].tobytes() == b"".join(one["move"][0].tobytes() for one in single)


def test_a_batch_of_nested_observations_has_a_batch_in_each_member():
    policy = policy_of("dag", observation=DICT)
    single = [
        {"a": np.array([row % 2, 1], np.int8), "b": (row, np.full((2, 2), 50 * row, np.uint8))} for row in range(N)
    ]
    batch = {
        "a": np.stack([one["a"] for one in single]),
        "b": (np.arange(N), np.stack([one["b"][1] for one in single])),
    }
    assert policy.outputs(batch).tobytes() == b"".join(policy.outputs(one).tobytes() for one in single)
    for wrong, said in (
        (batch | {"a": batch["a"][:2]}, "not "),
        ({"a": batch["a"]}, r"\(no member 'b'\)"),
        (single, r"\(an object of list, not a dictionary with '"),
        (batch | {"b": 1}, r"\(an object of int, not a tuple of 2\)"),
    ):
        with pytest.raises(InputError, match=f"^observation: expected an observation of .*{said}"):
            policy.outputs(wrong)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_and_change_nothing(number):
    policy, right = policy_of("elman"), np.array([1.0, 2.0, 3.0, 4.0])
    wrong = np.array([1.0, 2.0, number, 4.0])
    with pytest.raises(InputError, match=r"^observation: .* \((nan|inf) at position 2, not a finite number\)\.$"):
        policy(wrong)
    with pytest.raises(InputError, match=r"at position 2 in row 1, not a finite number"):
        policy(np.stack([right, wrong]))
    assert policy.outputs(right).tobytes() == policy_of("elman").outputs(right).tobytes()


def test_an_observation_of_another_shape_is_refused():
    with pytest.raises(
        InputError, match=r"^observation: expected an observation of .*, 4 numbers, got .*\(2,\), not \(4,\)"
    ):
        policy_of("mlp")([1, 2])


def test_one_number_of_a_discrete_space_is_one_observation_unless_a_batch_is_announced():
    policy = policy_of("mlp", observation=spaces.Discrete(3))
    assert policy.outputs(np.array([2])).shape == (2,)
    policy.reset(batch=1)
    assert policy.outputs(np.array([2])).shape == (1, 2)


def test_traces_of_a_hebbian_dag_follow_its_formulas():
    policy = policy_of({"name": "hebbian-dag", "hidden": [3], "plasticity": 0.5, "trace_rate": 0.25})
    genome = policy.weights
    assert {name: part.shape for name, part in genome.items()} == {"W_0_0": (4, 3), "W_1_0": (4, 3), "W_1_1": (3, 3)}
    assert not any(part.any() for part in policy.traces.values())
    x = [observed(4), None]
    z = x[0] @ genome["W_0_0"]
    x[1] = np.tanh(z)
    policy.outputs(x[0])
    mask = policy.genome.mask[0, :12].reshape(4, 3)
    grown = np.clip(0.25 * np.outer(x[0], z), -10, 10) * mask
    assert policy.traces["W_0_0"] == pytest.approx(grown, abs=1e-5)
    assert policy.weights["W_0_0"] == pytest.approx(genome["W_0_0"] + 0.5 * grown, abs=1e-5)
    assert (policy.traces["W_0_0"][~mask] == 0).all()


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_weights_are_those_of_the_next_step(name):
    """The first layer of every network but the LSTM is tanh of the observation times these weights."""
    policy = policy_of({"name": name, "hidden": [2]} if name != "hebbian-dag" else {"name": name, "plasticity": 0.3})
    seen = observed(5, 4)
    before = policy.weights
    for step in seen:
        policy.outputs(step)
    after = policy.weights
    learns = any((before[key] != after[key]).any() for key in before)
    assert learns == (name in ("hebbian-dag", "hebbian-lstm", "plastic-mlp"))
    assert policy.traces.keys() == (before.keys() if name.startswith("hebbian") else set())
    after[next(iter(after))][:] = 99  # a copy
    assert not (policy.weights[next(iter(after))] == 99).any()


def test_a_network_that_does_not_report_its_weights_is_named(monkeypatch):
    policy = policy_of("mlp")
    monkeypatch.delattr("evolve.networks.layered.LayeredBatch.weights")
    assert policy.weights  # the genome of a static network is its weights
    monkeypatch.setattr(type(policy.experiment.network), "is_static", False)
    with pytest.raises(InputError, match=r"network\.name: expected .*report.*mlp"):
        _ = policy.weights


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_begins_the_episodes_of_all_rows(copied):
    policy = policy_of("plastic-mlp", normalized=True)
    policy.reset(seed=9, batch=N)
    seen = observed(2, N, 4)
    outputs = [policy.outputs(rows).tobytes() for rows in seen]
    again = copied(policy)
    assert [again.outputs(rows).tobytes() for rows in seen] == outputs


TASK = """
import gymnasium
import numpy as np

class Gone(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(where=gymnasium.spaces.Discrete(3), x=gymnasium.spaces.Box(-1, 1, (2,)))
    action_space = gymnasium.spaces.Box(np.array([-1, 0], np.float32), np.array([3, np.inf], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return {"where": 1, "x": np.zeros(2, np.float32)}, {}

    def step(self, action):
        self.t += 1
        seen = {"where": self.t % 3, "x": self.np_random.uniform(-1, 1, 2).astype(np.float32)}
        return seen, 0.0, self.t > 3, False, {}

gymnasium.register("Gone-v0", Gone)
"""
MAKE = """
import evolve
for name, normalize in (("mlp", True), ("hebbian-dag", False)):
    run = evolve.train(env="gone_task:Gone-v0", network=name, generations=2, population=4, episodes=1, seed=1,
                       held_out_episodes=2, normalize_observations=normalize, output=name)
    run.export(f"{name}.champion")
"""
USE = """
import pickle, sys
import numpy as np
import evolve
for name in ("mlp", "hebbian-dag"):
    for path in (f"{name}.champion", f"{name}/seed-1.h5"):
        policy = pickle.loads(pickle.dumps(evolve.load(path).champion()))
        for t in range(5):
            print(policy({"where": t % 3, "x": np.array([0.1 * t, -0.2], np.float32)}).tobytes().hex())
    evolve.load(f"{name}/seed-1.h5").champion(generation=0)
    policy.export(f"{name}.json")
    policy.export(f"{name}.c")
"""
ALONE = f"""{USE}
assert sys.modules["gymnasium"] is None
try:
    evolve.load("old.champion").champion()
except evolve.InputError as error:
    print(error)
"""


def test_a_policy_works_without_its_environment_and_without_gymnasium(tmp_path, call):
    (tmp_path / "gone_task.py").write_text(TASK)
    there = finished([sys.executable, "-c", MAKE + USE], tmp_path).ok().out
    (tmp_path / "gone_task.py").unlink()
    # A file of an earlier version has no spaces.
    shutil.copy("mlp.champion", "old.champion")
    with h5py.File("old.champion", "r+") as file:
        del file.attrs["spaces"]
    done = finished([sys.executable, "-c", ALONE], tmp_path, **without("gymnasium"))
    assert (done.code, done.out[: len(there)], done.err) == (0, there, "")
    error = done.out[len(there) :]
    assert "a file of an earlier version" in error
    assert "Export the champion where its environment is installed" in error
    # The same in this process, which has Gymnasium but not the environment.
    assert evolve.load("mlp.champion").plot_network()._repr_mimebundle_()[0]
    assert call("plot", "mlp.champion", "--network", "-o", "network.svg").ok().out == "network.svg\n"
    with pytest.raises(evolve.InputError, match="gone_task"):
        _ = evolve.load("mlp.champion").experiment


def test_an_export_adds_the_spaces_to_a_file_of_an_earlier_version(tmp_path):
    old = evolve.load(ROOT / "zoo" / "acrobot.champion")
    path = tmp_path / "a.champion"
    path.write_bytes(old.path.read_bytes())
    with h5py.File(path, "r+") as file:
        file.attrs.pop("spaces", None)
    again = evolve.load(evolve.load(path).export(tmp_path / "new.champion"))
    with h5py.File(again.path) as file:
        assert '"Discrete"' in file.attrs["spaces"]
    assert again.digest == old.digest
    assert again.held_out.returns.tolist() == old.held_out.returns.tolist()
    seen = np.ones(6, np.float32)
    assert again.champion().outputs(seen).tobytes() == old.champion().outputs(seen).tobytes()


@pytest.mark.parametrize(
    "damage",
    [
        "[]",
        "{}",
        '{"observation": {"type": "Box", "shape": [99999, 99999], "dtype": "f4", "low": 0, "high": 1}, "action": null}',
        '{"observation": {"type": "Text"}, "action": null}',
        '{"observation": {"type": "Discrete", "n": -1, "start": 0}, "action": null}',
        '{"observation": {"type": "Discrete", "n": 5, "start": 0}, "action": {"type": "Discrete", "n": 2, "start": 0}}',
    ],
)
def test_damaged_spaces_are_refused(damage, tmp_path):
    path = tmp_path / "a.champion"
    path.write_bytes((ROOT / "zoo" / "acrobot.champion").read_bytes())
    with h5py.File(path, "r+") as file:
        file.attrs["spaces"] = damage
    with pytest.raises(InputError, match=r"a\.champion"):
        evolve.load(path).champion()
