"""What settings are called, may be and mean: from the docstrings of their models, and from their limits."""

from typing import Literal

from pydantic import Field

from evolve.config import Options, descriptions
from evolve.config.descriptions import Description


class Base(Options):
    """What cars have in common.

    wheels: how many; at least two,
    as a rule.
    """

    wheels: int = Field(4, ge=2, le=18)


class Car(Base):
    """A car: it drives.

    colour: what it looks like.
    nonsense: is no setting, so this belongs to the colour.
    """

    colour: Literal["red", "blue"] = "red"
    owner: str | None = None
    seats: tuple[int, ...] = (2, 3)


def test_settings_are_described_by_docstrings_and_limits():
    assert descriptions(Car) == [
        Description("wheels", "4", "2 to 18", "how many; at least two, as a rule."),
        Description(
            "colour",
            '"red"',
            '"red" or "blue"',
            "what it looks like. nonsense: is no setting, so this belongs to the colour.",
        ),
        Description("owner", "", "", ""),
        Description("seats", "[2, 3]", "", ""),
    ]
