"""Settings are described by their docstrings and by the limits of their types."""

from typing import Literal

from pydantic import Field

from evolve.config import Choice, Config, Options, annotated_toml, descriptions
from evolve.config.descriptions import Description
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES


class Base(Options):
    """What cars have in common."""

    wheels: int = Field(4, ge=2, le=18)
    """How many; at least two,
    as a rule."""


class Car(Base):
    """A car: it drives."""

    colour: Literal["red", "blue"] = "red"
    """The colour of the paint."""
    owner: str | None = None
    seats: tuple[int, ...] = (2, 3)


def test_settings_are_described_by_docstrings_and_limits():
    assert descriptions(Car) == [
        Description("wheels", "4", "2 to 18", "How many; at least two, as a rule."),
        Description("colour", '"red"', '"red" or "blue"', "The colour of the paint."),
        Description("owner", "", "", ""),
        Description("seats", "[2, 3]", "", ""),
    ]


class Train(Options):
    """Settings of a strategy of another package."""

    lengths: tuple[int, ...] = Field(default_factory=lambda: (3, 4))
    """The lengths of the carriages."""


def test_a_setting_whose_default_a_function_makes_has_a_comment():
    assert ("mlp" in NETWORKS, "train" in STRATEGIES) == (True, False)  # both registries are known
    text = annotated_toml(Config(strategy=Choice("train", Train())))
    assert "# The lengths of the carriages.\nlengths = [\n" in text
