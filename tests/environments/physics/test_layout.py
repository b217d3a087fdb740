"""The records have the sizes and the offsets of the structures in C, and the joints of the kernels' constants."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from processors import INCLUDES

from evolve.config import EnvOptions
from evolve.environments import TASKS, exact_task
from evolve.environments.physics import frames

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
STRUCTURES = {
    "pcg64": frames.GENERATOR, "body": frames.BODY, "joint": frames.JOINT, "contact_point": frames.POINT,
    "contact": frames.CONTACT, "block": frames.BLOCK, "world": frames.WORLD, "hull": frames.HULL, "hinge": frames.HINGE,
    "model": frames.MODEL,
}  # fmt: skip
PLURALS = {"body": "bodies", "joint": "joints", "contact": "contacts", "block": "blocks", "hull": "hulls",
           "hinge": "hinges"}  # fmt: skip
OTHERS = {("body", "sine"): "q.s", ("body", "cosine"): "q.c"}


def in_c(structure, field):
    plural = PLURALS.get(field) if structure in ("world", "model") else None
    return OTHERS.get((structure, field), plural or field)


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_records_are_structures_of_c(tmp_path):
    expected, lines = [], []
    for structure, dtype in STRUCTURES.items():
        expected.append(dtype.itemsize)
        lines.append(f"sizeof({structure})")
        for field, (_, offset) in dtype.fields.items():
            expected.append(offset)
            lines.append(f"offsetof({structure}, {in_c(structure, field)})")
    source = tmp_path / "layout.c"
    program = [
        '#include "bodies.h"',
        "#include <stddef.h>",
        "#include <stdio.h>",
        "int main(void) {",
        *(f'    printf("%zu\\n", {line});' for line in lines),
        "}",
    ]
    source.write_text("\n".join(program))
    subprocess.run([COMPILER, "-w", *INCLUDES, source, "-o", tmp_path / "layout", "-lm"], check=True)
    printed = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert dict(zip(lines, map(int, printed.split()), strict=True)) == dict(zip(lines, expected, strict=True))


@pytest.mark.parametrize("env", [env for env, task in TASKS.items() if task.has_world])
def test_the_joints_of_a_device_are_those_of_the_model(env):
    task = exact_task(EnvOptions(id=env, engine="exact"))
    header = (ROOT / "evolve" / "environments" / "kernels" / f"{task.kernel}.h").read_text()
    joints = re.findall(r"X\((\d), (\d), (\d)\)", header)
    order = task.model["joint_order"][: task.model["num_joints"]]
    assert [tuple(map(int, joint)) for joint in joints] == [
        (j, *task.model["hinge"][["a", "b"]][j].item()) for j in order
    ]
