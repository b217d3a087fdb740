"""Policies in other formats: JSON, ONNX and PyTorch compute what the engine computes."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from conftest import ROOT
from gymnasium import spaces

import evolve
from evolve import store
from evolve.analysis import exports
from evolve.analysis.c_source import describe_spaces
from evolve.analysis.policy import Policy
from evolve.config import Config
from evolve.environments import Spaces
from evolve.errors import InputError
from evolve.numerics.streams import Purpose, Stream
from evolve.training import prepare
from evolve.training.experiment import prepare_policy

STATIC = ["mlp", "dag", "binary-mask-mlp", "elman", "hebbian-dag"]
PLASTIC = [{"name": "hebbian-dag", "plasticity": 0.1}, {"name": "hebbian-lstm"}, {"name": "plastic-mlp"}]
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "box": spaces.Box(np.array([[-2, 0], [-1, -np.inf]], np.float32), np.array([[2, 1], [5, np.inf]], np.float32)),
    "whole": spaces.Box(np.array([0, -3]), np.array([10, 3]), dtype=np.int64),
    "multi-discrete": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "dict": spaces.Dict(jump=spaces.Discrete(2), move=spaces.Box(-2, 2, (3,))),
    "tuple": spaces.Tuple((spaces.MultiBinary(2), spaces.Dict(gear=spaces.Box(0, 9, (2,), np.int64)))),
}
N, STEPS = 3, 12
PAGE = (ROOT / "docs" / "champions.md").read_text()


def policy_of(network, action="discrete", normalized=True):
    table = {"env": {"id": "nowhere:Gone-v0", "action_scale": 0.7}, "network": network}
    known = Spaces(spaces.Box(-np.inf, np.inf, (5,), np.float32), ACTIONS[action])
    experiment = prepare_policy(Config.model_validate(table), known)
    genome = experiment.network.init(Stream(3, Purpose.INIT, 0, 0))
    normalizer = np.stack([np.full(5, 0.25), np.full(5, 1.5)]).astype(np.float32) if normalized else None
    return Policy(experiment, genome, normalizer)


def episode(policy):
    """Return observations [steps, N, O], and the policy's outputs and actions."""
    seen = np.random.default_rng(1).normal(0, 2, (STEPS, N, 5)).astype(np.float32)
    policy.reset(batch=N)
    outputs = [policy.outputs(rows) for rows in seen]
    return seen, outputs, [policy.decode(rows) for rows in outputs]


def check(policy, play):
    """Compare an episode with `play`, which maps (observations, memory) to (action, outputs, memory)."""
    memory = None
    for seen, outputs, actions in zip(*episode(policy), strict=True):
        action, theirs, memory = play(seen, memory)
        assert np.abs(theirs - outputs).max() < 1e-6
        assert (action.dtype, action.shape) == (actions.dtype, actions.shape)
        assert action == pytest.approx(actions, abs=1e-5)


CASES = [(name, "discrete") for name in STATIC] + [
    ("mlp", action) for action in ACTIONS if action not in ("discrete", "dict")
]


GRAPHS = [(name, action) for name, action in CASES if action != "tuple"]  # a graph has no action of several parts


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("name", "action"), GRAPHS)
def test_onnx(name, action, normalized, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of({"name": name}, action, normalized)
    session = runtime.InferenceSession(policy.export(tmp_path / "a.onnx").read_bytes())
    (shape, *rest) = [given.shape for given in session.get_inputs()]
    assert shape == ["N", 5]

    def play(seen, memory):
        given = {"observation": seen}
        if rest:
            given["memory"] = np.zeros((N, rest[0][1]), np.float32) if memory is None else memory
        found = dict(zip((o.name for o in session.get_outputs()), session.run(None, given), strict=True))
        return found["action"], found["outputs"], found.get("next_memory")

    assert bool(rest) == (name == "elman")
    check(policy, play)


@pytest.mark.parametrize(("name", "action"), GRAPHS)
def test_pytorch(name, action, tmp_path):
    torch = pytest.importorskip("torch")
    policy = policy_of({"name": name}, action)
    module = torch.export.load(str(policy.export(tmp_path / "a.pt2"))).module()

    def play(seen, memory):
        given = [torch.from_numpy(seen)]
        if name == "elman":
            given.append(torch.zeros(N, 16) if memory is None else memory)
        action, outputs, *memory = module(*given)
        return action.numpy(), outputs.numpy(), memory[0] if memory else None

    check(policy, play)


def test_a_graph_has_only_outputs_if_actions_are_a_dict(tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of({"name": "mlp"}, "dict")
    session = runtime.InferenceSession(policy.export(tmp_path / "a.onnx").read_bytes())
    assert [output.name for output in session.get_outputs()] == ["outputs"]
    for seen, outputs, _ in zip(*episode(policy), strict=True):
        assert np.abs(session.run(None, {"observation": seen})[0] - outputs).max() < 1e-6


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
@pytest.mark.parametrize("network", PLASTIC, ids=lambda network: network["name"])
def test_a_graph_of_a_network_that_learns_is_refused(network, suffix, tmp_path):
    with pytest.raises(InputError, match=r"weights that do not change.*got .*Export it as C"):
        policy_of(network).export(tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


def test_weights_that_json_does_not_have_are_refused(tmp_path):
    policy = policy_of({"name": "mlp"})
    policy.genome.weights[:] = np.nan
    policy.reset()
    with pytest.raises(InputError, match="finite weights"):
        policy.export(tmp_path / "a.json")


def test_a_network_without_a_kernel_is_exported_as_json_alone(tmp_path):
    policy = policy_of({"name": "leaky"})  # examples/outside
    with pytest.raises(InputError, match=r"a network with a C kernel, got leaky\. Export it as JSON"):
        policy.export(tmp_path / "a.c")
    with pytest.raises(InputError, match=r"got leaky\. If it consists of tanh layers, say so: is_static = True\."):
        policy.export(tmp_path / "a.onnx")
    table = json.loads(policy.export(tmp_path / "a.json").read_text())
    assert [len(matrix["weights"]) for matrix in table["matrices"]] == [policy.genome.weights.size]


@pytest.mark.parametrize(("suffix", "module"), [(".onnx", "onnx"), (".pt2", "torch")])
def test_a_missing_library_is_named(suffix, module, tmp_path, absent):
    absent(module)
    with pytest.raises(InputError, match=rf"^export: expected a working .*pip install -e '.*\[{module}\]'"):
        policy_of({"name": "mlp"}).export(tmp_path / f"a{suffix}")


def test_other_endings_are_refused(tmp_path):
    for name in ("a.pt", "a", "a.champion"):
        with pytest.raises(InputError, match=r"\.c or \.json or \.onnx or \.pt2"):
            policy_of({"name": "mlp"}).export(tmp_path / name)
    with pytest.raises(InputError, match=r"\.champion or \.c"):
        evolve.load(ROOT / "zoo" / "acrobot.champion").export(tmp_path / "a.csv")


def test_the_endings_of_a_run_include_its_columns(tmp_path):
    made = evolve.train(env="CartPole-v1", population=4, generations=1, episodes=1, output=tmp_path)
    with pytest.raises(InputError, match=r"\.champion or .* or \.pt2 or \.csv\."):
        made.export(tmp_path / "a.tb")


def reader():
    """Return the functions of the reader on the page, in Python."""
    code = re.search(r'```python title="read_policy\.py"\n(.*?)```', PAGE, re.S)[1]
    assert code.count("\n") <= 40
    namespace = {"__name__": "reader"}
    exec(compile(code, "read_policy.py", "exec"), namespace)
    return namespace["Policy"]


@pytest.mark.parametrize("name", ["mlp", "hebbian-lstm"])
def test_a_batch_that_was_played_changes_no_number_of_the_json(name, tmp_path):
    policy = policy_of({"name": name})
    fresh = policy.export(tmp_path / "fresh.json").read_bytes()
    episode(policy)
    assert policy.export(tmp_path / "played.json").read_bytes() == fresh


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("name", "action"), CASES)
def test_the_reader_of_the_page_computes_the_outputs(name, action, normalized, tmp_path):
    policy = policy_of({"name": name}, action, normalized)
    theirs = reader()(policy.export(tmp_path / "a.json"))
    seen, outputs, _ = episode(policy)
    for step, rows in zip(seen, outputs, strict=True):
        assert np.abs(np.array(theirs.outputs(step[0].tolist())) - rows[0]).max() < 1e-6


def leaves(action):
    """Return all numbers of an action, with the keys of its members, in order."""
    if isinstance(action, dict):
        return [item for key, part in action.items() for item in (key, *leaves(part))]
    if isinstance(action, tuple | list):
        return [item for part in action for item in leaves(part)]
    return np.ravel(action).tolist()


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "box") for name in STATIC), *(("elman", kind) for kind in ACTIONS if kind != "box")]
)
def test_the_reader_in_javascript_computes_the_outputs_and_the_actions(name, kind, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js")
    policy = policy_of({"name": name}, kind)
    seen, outputs, _ = episode(policy)
    code = re.search(r'```js title="policy\.js"\n(.*?)```', PAGE, re.S)[1]
    (tmp_path / "policy.mjs").write_text(code)
    policy.export(tmp_path / "a.json")
    (tmp_path / "seen.json").write_text(json.dumps(seen[:, 0].tolist()))
    script = """
        import { readFileSync } from "node:fs";
        import { Policy } from "./policy.mjs";
        const read = (name) => JSON.parse(readFileSync(name));
        const policy = new Policy(read("a.json"));
        const outputs = read("seen.json").map((o) => policy.outputs(o));
        console.log(JSON.stringify(outputs.map((y) => [y, policy.decode(y)])));
    """
    (tmp_path / "run.mjs").write_text(script)
    done = subprocess.run([node, "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for (theirs, action), rows in zip(json.loads(done.stdout), outputs, strict=True):
        assert np.abs(np.array(theirs) - rows[0]).max() < 1e-6
        for found, ours in zip(leaves(action), leaves(policy.decode(rows[0])), strict=True):
            assert found == (ours if isinstance(ours, str) else pytest.approx(ours, abs=1e-5))


@pytest.mark.parametrize("network", PLASTIC, ids=lambda network: network["name"])
def test_json_holds_every_number_of_a_network_that_learns(network, tmp_path):
    policy = policy_of(network)
    table = json.loads(policy.export(tmp_path / "a.json").read_text())
    assert (table["format"], table["version"], table["network"]["is_static"]) == ("evolve-policy", 1, False)
    name, options = table["network"]["name"], table["network"]["options"]
    assert {"name": name, **options} == json.loads(json.dumps(policy.experiment.config.network.table()))
    weights = np.concatenate([matrix["weights"] for matrix in table["matrices"]]).astype(np.float32)
    mask = np.concatenate([matrix["mask"] for matrix in table["matrices"]]).astype(bool)
    assert weights.tobytes() == policy.genome.weights.tobytes()
    assert mask.tobytes() == policy.genome.mask.tobytes()
    assert "float32" in table["network"]["formulas"]
    assert Spaces.from_json(table).to_json() == policy.experiment.spaces.to_json()


def decoded(space, rule, outputs):
    """Return an action and the remaining outputs, by the rules of docs/champions.md."""
    kind, shape = space["type"], tuple(space.get("shape", ()))
    if kind in ("Dict", "Tuple"):
        members = {}
        for part, inner in zip(space["spaces"], rule, strict=True):
            members[part["key"]], outputs = decoded(part["space"], inner, outputs)
        return members if kind == "Dict" else tuple(members.values()), outputs
    if kind == "Box":
        size = len(rule["centre"])
        value = np.array(rule["centre"]) + np.array(rule["half"]) * outputs[:size]
        value = np.clip(value, rule["floor"], rule["ceiling"])
        return (np.rint(value) if rule["rounded"] else value).reshape(shape), outputs[size:]
    assert rule is None
    if kind == "MultiBinary":
        size = int(np.prod(shape))
        return (outputs[:size] > 0).reshape(shape), outputs[size:]
    groups = [space["n"]] if kind == "Discrete" else space["nvec"]
    starts = [space["start"]] if kind == "Discrete" else space["start"]
    chosen = []
    for size, first in zip(groups, starts, strict=True):
        chosen.append(first + int(np.argmax(outputs[:size])))
        outputs = outputs[size:]
    return np.array(chosen).reshape(shape), outputs


def parts_of(action):
    """Return the arrays of an action, which may have members."""
    members = action.values() if isinstance(action, dict) else action if isinstance(action, tuple) else None
    return [np.asarray(action)] if members is None else [part for member in members for part in parts_of(member)]


@pytest.mark.parametrize("action", ACTIONS)
def test_the_documented_rules_turn_outputs_into_actions(action, tmp_path):
    policy = policy_of({"name": "mlp"}, action)
    table = json.loads(policy.export(tmp_path / "a.json").read_text())
    for outputs in np.random.default_rng(2).uniform(-1, 1, (20, policy.experiment.action_size)).astype(np.float32):
        found, rest = decoded(table["action"], table["decode"], outputs)
        assert not len(rest)
        for ours, theirs in zip(parts_of(policy.decode(outputs)), parts_of(found), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("discrete", "output[0..2]: action is -1 + the index of the largest output"),
        ("box", "output[0]: number 0 of action is 1.4 * output, in [-2, 2]"),
        ("box", "output[3]: number 3 of action is 0.7 * output"),
        ("whole", "output[0]: number 0 of action is 5 + 3.5 * output, in [0, 10], rounded to whole numbers"),
        ("multi-discrete", "index of the largest output of each group, plus [1, 0]; the groups have [2, 3] outputs"),
        ("multi-binary", "output[0..3]: action has a 1 for each output above 0"),
        ("dict", 'output[0..1]: action["jump"] is the index of the largest output'),
        ("dict", 'output[2..4]: action["move"] is 1.4 * output, in [-2, 2]'),
        ("tuple", 'output[2..3]: action[1]["gear"] is 4.5 + 3.15 * output, in [0, 9], rounded to whole numbers'),
    ],
)
def test_the_head_of_a_c_file_describes_each_part_of_the_action(action, said, tmp_path):
    assert said in policy_of({"name": "mlp"}, action).export(tmp_path / "a.c").read_text()


def test_the_head_of_a_c_file_names_the_members_of_an_observation():
    parts = spaces.Dict(where=spaces.Box(-1, 1, (3,)), light=spaces.Discrete(2))
    table = {"env": {"id": "nowhere:Gone-v0"}, "network": {"name": "mlp"}}
    experiment = prepare_policy(Config.model_validate(table), Spaces(parts, ACTIONS["discrete"]))
    where, light, _ = describe_spaces(experiment)
    assert (where, light) == ('observation[0..2]: observation["where"]', 'observation[3..4]: observation["light"]')


def test_the_head_of_a_c_file_names_the_divisor_of_an_image():
    table = {"env": {"id": "nowhere:Gone-v0"}, "network": {"name": "mlp"}}
    image, flags = spaces.Box(0, 128, (2, 2), np.uint8), spaces.Box(0, 1, (2,), np.uint8)
    for space, lines in (
        (image, ["observation[0..3]: observation, divided by 128"]),
        (flags, []),
        (spaces.Tuple((flags, image)), ["observation[0..1]: observation[0]",
                                        "observation[2..5]: observation[1], divided by 128"]),
    ):  # fmt: skip
        experiment = prepare_policy(Config.model_validate(table), Spaces(space, ACTIONS["discrete"]))
        assert describe_spaces(experiment)[:-1] == lines


@pytest.mark.parametrize("name", ["leaky", "mlp", "elman", "dag", "binary-mask-mlp"])
def test_a_network_from_outside_is_described_as_far_as_it_says(name, monkeypatch, tmp_path):
    policy = policy_of({"name": name})  # leaky is in examples/outside
    monkeypatch.setattr(exports, "NETWORKS", {})  # as if all were from outside
    network = json.loads(policy.export(tmp_path / "a.json").read_text())["network"]
    assert network["formulas"]
    known = (False, None, None) if name == "leaky" else (True, "tanh")
    assert (network["is_static"], network["activation"], network["sums"])[: len(known)] == known


@pytest.mark.parametrize(("name", "activation"), [("elman", "tanh"), ("hebbian-dag", "tanh"), ("hebbian-lstm", None)])
def test_json_names_the_activation_that_all_layers_have(name, activation, tmp_path):
    path = policy_of({"name": name}).export(tmp_path / "a.json")
    assert json.loads(path.read_text())["network"]["activation"] == activation


@pytest.mark.parametrize("ending", ["json", "onnx"])
def test_a_network_from_outside_that_has_no_tanh_layers_is_refused(ending, monkeypatch, tmp_path):
    policy = policy_of({"name": "leaky"})
    monkeypatch.setattr(type(policy.experiment.network), "is_static", True, raising=False)
    with pytest.raises(
        InputError, match=r"got leaky, whose outputs are not the ones of tanh layers\. Leave is_static out"
    ):
        policy.export(tmp_path / f"a.{ending}")


def test_the_title_names_the_wrappers_of_observations_and_actions(tmp_path):
    wrappers = [
        {"name": "FrameStackObservation", "kwargs": {"stack_size": 3}},
        {"name": "RescaleAction", "kwargs": {"min_action": -1.0, "max_action": 1.0}},
    ]
    experiment = prepare(Config.model_validate({"env": {"id": "Pendulum-v1", "wrappers": wrappers}, "network": "mlp"}))
    policy = Policy(experiment, experiment.network.init(Stream(7, Purpose.INIT, 0, 0)))
    title = "mlp for Pendulum-v1 in the wrappers FrameStackObservation, RescaleAction"
    assert exports.to_json(policy)["title"] == title
    assert title in policy.export(tmp_path / "a.c").read_text().splitlines()[0]


def test_the_command_writes_each_format(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    champion = ROOT / "zoo" / "acrobot.champion"
    shutil.copy(champion, "a.champion")
    assert call("export", "a.champion", "--format", "json").out.strip() == "a.json"
    call("export", "a.champion", "-o", "b.json").ok()
    call("export", "a.champion", "-o", "b.champion").ok()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    call("export", "a.champion", "-o", "a.c").ok()
    evolve.load("a.champion").champion().export("b.c")
    assert (tmp_path / "a.c").read_bytes() == (tmp_path / "b.c").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text())["title"].startswith(
        "mlp for Acrobot-v1: the champion of seed 1"
    )
    assert call("export", "a.champion", "--format", "json", "-o", "a.c").code == 2
    assert call("export", "a.champion", "--format", "csv").code == 2
    assert call("export", "a.champion", "--format", "pickle").code == 2


def test_a_run_without_a_generation_is_refused(tmp_path):
    stored = store.read_champion(ROOT / "zoo" / "cartpole.champion")
    store.create(tmp_path / "seed-0.h5", replace(stored.header, seed=0)).close()
    with pytest.raises(InputError, match="complete generation"):
        evolve.load(tmp_path / "seed-0.h5").export(tmp_path / "a.c")
