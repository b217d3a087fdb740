"""Variants of the kernels' sources, for experiments with them."""

import re

from evolve.numerics.cupy_device import source_files

_UNIT = "kernels.cu"
_ENTRIES = re.compile(r"^(#include \"|COLUMNS\(|OVER_NUMBERS\()(\w+).*\n", re.MULTILINE)
_WAITING = re.compile(r"\b(BARRIER|ANY_LANE)\(")
_FUNCTION = re.compile(r"(?:INLINE|#define (?=STEP|SETTLE|PLAY)).*?(\w+)\(")
_NAMED = r"""
#define NAMED_BARRIER(name) asm volatile("bar.sync " #name ";" ::: "memory")
template <int name> __device__ __forceinline__ int named_any_lane(int vote)
{
    int any;
    asm volatile("{\n\t.reg .pred %%mine, %%all;\n\tsetp.ne.u32 %%mine, %1, 0;\n"
                 "\tbar.red.or.pred %%all, %2, %%mine;\n\tselp.u32 %0, 1, 0, %%all;\n\t}"
                 : "=r"(any) : "r"(vote), "n"(name) : "memory");
    return any;
}
"""


def only(*names: str) -> dict[str, str]:
    """Return sources of some kernels, which take less time to compile than all.

    names: Of networks ("layered"), functions ("tanh") and the bits of columns ("32").
    """
    files = source_files()
    needed, mark, entries = files[_UNIT].partition("#define ENTRY")
    return files | {_UNIT: needed + mark + _ENTRIES.sub(lambda entry: entry[0] if entry[2] in names else "", entries)}


def with_named_barriers(files: dict[str, str]) -> tuple[dict[str, str], dict[int, str]]:
    """Return sources in which each BARRIER and ANY_LANE has a name, from 1 on, and where it stands, by name.

    That is the function, or the macro, and its number there: "activate 2".
    """
    places: dict[int, str] = {}
    named = dict(files)
    for file, text in files.items():
        if file == "lanes.h":
            named[file] = text.replace("#define LANES 1\n", f"#define LANES 1\n{_NAMED}")
            continue
        lines = text.split("\n")
        function, number = "", 0
        for i, line in enumerate(lines):
            if found := _FUNCTION.match(line):
                function, number = found[1], 0
            if found := _WAITING.search(line):
                name, number = len(places) + 1, number + 1
                places[name] = f"{function} {number}"
                call = f"NAMED_BARRIER({name}" if found[1] == "BARRIER" else f"named_any_lane<{name}>("
                lines[i] = line[: found.start()] + call + line[found.end() :]
        named[file] = "\n".join(lines)
    return named, places
