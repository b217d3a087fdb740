"""Changes to run files, made without the command that wrote them."""

import json

import h5py
import numpy as np


def tamper(path, place, where, value):
    """Change one value of a column."""
    with h5py.File(path, "r+") as file:
        array = file[place][()]
        array[where] = value
        file[place][...] = array


def edit_config(path, old, new):
    """Change one setting."""
    with h5py.File(path, "r+") as file:
        text = file.attrs["config"]
        assert text.count(old) == 1
        file.attrs["config"] = text.replace(old, new)


def edit_manifest(path, **more):
    """Change entries of the manifest."""
    with h5py.File(path, "r+") as file:
        file.attrs["manifest"] = json.dumps(json.loads(file.attrs["manifest"]) | more)


def remove(name):
    """Return a function that removes an item of a file."""

    def damage(file):
        del file[name]

    return damage


def put(name, value, **how):
    """Return a function that puts a value, or a new dataset, in the place of an item."""

    def damage(file):
        if name in file:
            del file[name]
        if how:
            file.create_dataset(name, value, **how)
        else:
            file[name] = value

    return damage


def attribute(name, value):
    """Return a function that changes an attribute of a file, or removes it if `value` is None."""

    def damage(file):
        if value is None:
            del file.attrs[name]
        else:
            file.attrs[name] = value

    return damage


def spoil(path, how):  # noqa: PLR0912 - one branch for each change
    """Make one of the changes in SPOILED to a run file that has all genomes and held-out episodes."""
    with h5py.File(path, "r+") as file:
        best = int(file["champion/candidate"][1])
        other = (best + 1) % 6
        match how:
            case "seed":
                file.attrs["seed"] = 7
            case "configuration":
                file.attrs["config"] = file.attrs["config"].replace("plasticity = 0.0", "plasticity = 0.2")
            case "champion's fitness":
                file["champion/fitness"][1] += 1
            case "step hashes":
                file["champion/step_hashes"][3, 1] ^= 4
            case "last step hash":
                file["champion/step_hashes"][-1, 0] ^= 4
            case "return":
                file["generation/returns"][1, other, 0] += 1
            case "steps":
                file["generation/steps"][2] += 1
            case "connections":
                file["generation/connections"][1, best] -= 1
            case "genome fingerprint":
                file["fingerprint/genomes"][1, other] ^= np.uint64(1)
            case "initial genome's fingerprint":
                file["fingerprint/genomes"][0, (int(file["champion/candidate"][0]) + 1) % 6] ^= np.uint64(1)
            case "action fingerprint":
                file["fingerprint/episodes"][1, best, 0, 1] ^= np.uint64(1 << 60)
            case "genome":
                file["population/mask"][2, other, 0] ^= True
            case "normalizer":
                file["generation/normalizer"][1, 0, 0] += 1e-6
            case "validation return":
                file["validation/returns"][0, 1] += 1
            case "held-out champion":
                file["evaluation/weights"][0] *= 1.001
            case "held-out return":
                file["evaluation/returns"][1] += 1
            case "held-out evaluation":
                del file["evaluation"]
            case "held-out seeds":
                file["evaluation/seeds"][0] += 1
                file["evaluation/returns"][0] += 1
            case "number of held-out episodes":
                for name in ("returns", "seeds"):
                    values = file[f"evaluation/{name}"][:1]
                    del file[f"evaluation/{name}"]
                    file[f"evaluation/{name}"] = values
            case "spaces":
                spaces = json.loads(file.attrs["spaces"])
                spaces["action"]["start"] = 5
                file.attrs["spaces"] = json.dumps(spaces)


SPOILED = ("seed", "configuration", "champion's fitness", "step hashes", "last step hash", "return", "steps",
           "connections", "genome fingerprint", "initial genome's fingerprint", "action fingerprint", "genome",
           "normalizer", "validation return", "held-out champion", "held-out return",
           "held-out evaluation", "held-out seeds", "number of held-out episodes", "spaces")  # fmt: skip
"""What `spoil` can change."""
