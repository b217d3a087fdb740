"""The tasks: the experiment of evolution's side, and the settings of the methods that follow gradients.

The settings are those that rl-baselines3-zoo publishes (hyperparams/ppo.yml, tqc.yml); if it has only an earlier
version of an environment, the settings for that version; for cues, which it lacks, our own. The text of `source` is
printed below the table.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parents[1] / "experiments"


@dataclass(frozen=True)
class Gradient:
    """The settings of a method that follows gradients.

    steps: of training. envs: how many environments it steps together. normalize: whether observations and
    rewards are normalized. algorithm: the class, PPO, RecurrentPPO (with an LSTM) or TQC. settings: of the constructor;
    the text `linear_X` is X that decreases to 0. network: of `policy_kwargs`. source: their origin.
    """

    steps: int
    envs: int
    settings: dict[str, Any]
    source: str
    normalize: bool = False
    algorithm: str = "PPO"
    network: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A task: its experiment; the discrete actions, if they are; the aim for the held-out mean return; the other sides.

    ends_by_itself: whether the limit of steps is the task's end, not a truncation. tqc: None if TQC does not play it.
    """

    experiment: Path
    aim: float
    ppo: Gradient
    tqc: Gradient | None = None
    choices: int | None = None
    ends_by_itself: bool = False


_LANDER = {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
_WALKER = {"n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999, "n_epochs": 10, "ent_coef": 0.0,
           "learning_rate": 3e-4, "clip_range": 0.18}  # fmt: skip
_WALKER_TQC = {"learning_rate": 7.3e-4, "buffer_size": 300_000, "batch_size": 256, "ent_coef": "auto", "gamma": 0.98,
               "tau": 0.02, "train_freq": 64, "gradient_steps": 64, "learning_starts": 10_000,
               "use_sde": True}  # fmt: skip
_CHEETAH = {"n_steps": 512, "batch_size": 64, "gae_lambda": 0.92, "gamma": 0.98, "n_epochs": 20,
            "ent_coef": 0.000401762, "learning_rate": 2.0633e-05, "clip_range": 0.1, "max_grad_norm": 0.8,
            "vf_coef": 0.58096}  # fmt: skip
_CART_POLE = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
              "learning_rate": "linear_0.001", "clip_range": "linear_0.2"}  # fmt: skip
_CUES = {"n_steps": 96, "batch_size": 3072, "gae_lambda": 0.9, "gamma": 0.5, "n_epochs": 10, "ent_coef": 0.0,
         "learning_rate": 3e-3}  # fmt: skip
_LSTM = {"lstm_hidden_size": 64, "shared_lstm": True, "enable_critic_lstm": False, "net_arch": []}
_WIDE = {"log_std_init": -2.0, "ortho_init": False, "activation": "ReLU",
         "net_arch": {"pi": [256, 256], "vf": [256, 256]}}  # fmt: skip

TASKS = {
    "cartpole": Task(
        EXPERIMENTS / "cartpole.toml", 475.0, Gradient(100_000, 8, _CART_POLE, "the zoo's for CartPole-v1"), choices=2
    ),
    "lander": Task(
        EXPERIMENTS / "lander.toml", 200.0, Gradient(1_000_000, 16, _LANDER, "the zoo's for LunarLander-v2"), choices=4
    ),
    "walker": Task(
        EXPERIMENTS / "walker-quick.toml",
        300.0,
        Gradient(5_000_000, 32, _WALKER, "the zoo's for BipedalWalker-v3", normalize=True),
        tqc=Gradient(
            500_000,
            1,
            _WALKER_TQC,
            "the zoo's for BipedalWalker-v3",
            algorithm="TQC",
            network={"log_std_init": -3, "net_arch": [400, 300]},
        ),
    ),
    "cheetah": Task(
        EXPERIMENTS / "cheetah.toml",
        3000.0,
        Gradient(1_000_000, 1, _CHEETAH, "the zoo's for HalfCheetah-v3", normalize=True, network=_WIDE),
    ),
    "cues": Task(
        HERE / "cues.toml",
        0.9,
        Gradient(
            500_000,
            256,
            _CUES,
            "the best of 12 tried here with seed 101 (the zoo has no cues)",
            normalize=True,
            algorithm="RecurrentPPO",
            network=_LSTM,
        ),
        choices=2,
        ends_by_itself=True,
    ),
}
