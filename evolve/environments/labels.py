"""Names of the observations and actions of well-known environments, for drawings; from Gymnasium's documentation."""

_LEGS = ("hip angle", "hip speed", "knee angle", "knee speed", "foot contact")
_WALKER = (
    "hull angle", "hull angular speed", "speed x", "speed y",
    *(f"{part} {leg}" for leg in (1, 2) for part in _LEGS), *(f"lidar {n}" for n in range(1, 11)),
)  # fmt: skip
_CHEETAH_JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_CHEETAH = (
    "height", "pitch", *(f"{joint} angle" for joint in _CHEETAH_JOINTS),
    "speed x", "speed z", "pitch speed", *(f"{joint} speed" for joint in _CHEETAH_JOINTS),
)  # fmt: skip
_LANDER = ("x", "y", "speed x", "speed y", "angle", "angular speed", "left leg contact", "right leg contact")
_ACROBOT = ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "angular speed 1", "angular speed 2")

_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CartPole": (("position", "speed", "pole angle", "pole angular speed"), ("push left", "push right")),
    "Pendulum": (("cos angle", "sin angle", "angular speed"), ("torque",)),
    "MountainCar": (("position", "speed"), ("push left", "coast", "push right")),
    "MountainCarContinuous": (("position", "speed"), ("force",)),
    "Acrobot": (_ACROBOT, ("torque −1", "torque 0", "torque +1")),
    "LunarLander": (_LANDER, ("coast", "left engine", "main engine", "right engine")),
    "BipedalWalker": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "BipedalWalkerHardcore": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "InvertedPendulum": (("position", "pole angle", "speed", "pole angular speed"), ("force",)),
    "HalfCheetah": (_CHEETAH, _CHEETAH_JOINTS),
}


def names(env: str, observations: int, actions: int) -> tuple[list[str], list[str]]:
    """Return the names of an environment's observations and actions; "observation 0" and so on where none are known.

    Args:
        env: The id of the environment.
        observations: O, how many there are.
        actions: A.
    """
    family = env.rpartition(":")[2].rpartition("/")[2].rpartition("-v")[0]
    known_observations, known_actions = _KNOWN.get(family, ((), ()))
    return _named(known_observations, "observation", observations), _named(known_actions, "action", actions)


def _named(known: tuple[str, ...], what: str, number: int) -> list[str]:
    """Return the known names if there are as many as needed, and numbered ones otherwise."""
    return list(known) if len(known) == number else [f"{what} {n}" for n in range(number)]
