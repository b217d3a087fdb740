"""The instructions of PTX that exact kernels may have, with what each of them does, in C.

All of them give the same bits on every device and on the host. What rounds twice or not at all (fma, .approx), flushes
denormals (.ftz), treats NaN in a way of its own (min, max), saturates (from floats to integers) or has no order
(atomics) is missing here, and so is refused. But floats may become integers that can hold them, which `runtime.c`
looks after; they may be limited by a constant, see `BOUNDS`; and `ptx.py` lets threads count together in integers,
whose sums no order changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

C_TYPES = {"pred": "int", "f32": "float", "f64": "double"} | {
    f"{kind}{bits}": f"{'' if kind == 's' else 'u'}int{bits}_t" for kind in "bus" for bits in (8, 16, 32, 64)
}
"""Types of PTX in C. Those of kind b are just bits."""
_FLOATS = ("f32", "f64")
_WIDEST = {"u": "unsigned __int128", "s": "__int128"}
_WIDER = {16: 32, 32: 64}
_COMPARISONS = {"eq": "a == b", "ne": "a != b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
_UNSIGNED = {"lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b"}
_OF_FLOATS = _COMPARISONS | {
    "ne": "a < b || a > b",
    "equ": "!(a < b || a > b)", "neu": "a != b", "ltu": "!(a >= b)", "leu": "!(a > b)", "gtu": "!(a <= b)",
    "geu": "!(a < b)", "num": "a == a && b == b", "nan": "a != a || b != b",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """What an instruction computes.

    Attributes:
        result: The type of its result.
        sources: The types of its sources, which are called a, b, c, d.
        expression: The result, in C.
    """

    result: str
    sources: tuple[str, ...]
    expression: str


def _float_forms() -> Iterator[tuple[str, Form]]:
    """Rounded to nearest, each on its own."""
    for t in _FLOATS:
        bits, sign = f"b{t[1:]}", f"((uint{t[1:]}_t)1 << {int(t[1:]) - 1})"
        for name, operator in {"add": "+", "sub": "-", "mul": "*", "div": "/"}.items():
            yield f"{name}.rn.{t}", Form(t, (t, t), f"a {operator} b")
        yield f"rcp.rn.{t}", Form(t, (t,), "1 / a")
        yield f"sqrt.rn.{t}", Form(t, (t,), "sqrtf(a)" if t == "f32" else "sqrt(a)")
        yield f"abs.{t}", Form(bits, (bits,), f"a & ~{sign}")
        yield f"neg.{t}", Form(bits, (bits,), f"a ^ {sign}")
        yield f"copysign.{t}", Form(bits, (bits, bits), f"(a & {sign}) | (b & ~{sign})")
        for name, expression in _OF_FLOATS.items():
            yield f"setp.{name}.{t}", Form("pred", (t, t), expression)


def _integer_forms() -> Iterator[tuple[str, Form]]:
    """Integers wrap around: so they are added and multiplied without a sign."""
    for bits in (16, 32, 64):
        u, b = f"u{bits}", f"b{bits}"
        for t in (u, f"s{bits}"):
            yield f"add.{t}", Form(u, (u, u), "a + b")
            yield f"sub.{t}", Form(u, (u, u), "a - b")
            yield f"mul.lo.{t}", Form(u, (u, u), "(uint64_t)a * b")
            yield f"mul.hi.{t}", Form(t, (t, t), f"({_WIDEST[t[0]]})a * b >> {bits}")
            yield f"mad.lo.{t}", Form(u, (u, u, u), "(uint64_t)a * b + c")
            yield f"neg.{t}", Form(u, (u,), "-a")
            yield f"div.{t}", Form(t, (t, t), "b ? a / b : undefined()")
            yield f"rem.{t}", Form(t, (t, t), "b ? a % b : undefined()")
            yield f"min.{t}", Form(t, (t, t), "a < b ? a : b")
            yield f"max.{t}", Form(t, (t, t), "a > b ? a : b")
            if bits in _WIDER:
                wide = f"{t[0]}{_WIDER[bits]}"
                yield f"mul.wide.{t}", Form(wide, (t, t), f"({C_TYPES[wide]})a * b")
                yield f"mad.wide.{t}", Form(wide, (t, t, wide), f"({C_TYPES[wide]})a * b + c")
        for name, operator in {"and": "&", "or": "|", "xor": "^"}.items():
            yield f"{name}.{b}", Form(b, (b, b), f"a {operator} b")
        yield f"not.{b}", Form(b, (b,), "~a")
        yield f"shl.{b}", Form(b, (b, "u32"), f"b < {bits} ? (uint64_t)a << b : 0")
        for t in (b, u):
            yield f"shr.{t}", Form(t, (t, "u32"), f"b < {bits} ? a >> b : 0")
        yield f"shr.s{bits}", Form(f"s{bits}", (f"s{bits}", "u32"), f"a >> (b < {bits} ? b : {bits - 1})")
    yield "clz.b32", Form("u32", ("b32",), "a ? __builtin_clz(a) : 32")
    yield "bfi.b64", Form("b64", ("b64", "b64", "u32", "u32"), "with_bits(a, b, c, d)")
    yield "shf.l.wrap.b32", Form("b32", ("b32", "b32", "u32"), "((uint64_t)b << 32 | a) << (c & 31) >> 32")
    yield "prmt.b32", Form("b32", ("b32", "b32", "b32"), "chosen_bytes(a, b, c)")


def _choices() -> Iterator[tuple[str, Form]]:
    """Comparisons, choices and copies."""
    for t in C_TYPES:
        if t[0] in "bus":
            for name, expression in (_COMPARISONS | (_UNSIGNED if t[0] == "u" else {})).items():
                yield f"setp.{name}.{t}", Form("pred", (t, t), expression)
        if t != "pred":
            yield f"selp.{t}", Form(t, (t, t, "pred"), "c ? a : b")
        yield f"mov.{t}", Form(t, (t,), "a")
    for name, operator in {"and": "&", "or": "|", "xor": "^"}.items():
        yield f"{name}.pred", Form("pred", ("pred", "pred"), f"a {operator} b")
    yield "not.pred", Form("pred", ("pred",), "!a")
    for space in ("global", "local", "param"):
        for direction in ("", ".to"):
            yield f"cvta{direction}.{space}.u64", Form("u64", ("u64",), "a")


def _conversions() -> Iterator[tuple[str, Form]]:
    integers = [f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)]
    for t in integers:
        for source in integers:
            yield f"cvt.{t}.{source}", Form(t, (source,), "a")
        for result in _FLOATS:
            yield f"cvt.rn.{result}.{t}", Form(result, (t,), "a")
    for t in _FLOATS:
        for bits in (32, 64):
            yield f"cvt.rzi.s{bits}.{t}", Form(f"s{bits}", (t,), f"whole_part(a, {bits})")  # where it fits
    yield "cvt.rmi.f32.f32", Form("f32", ("f32",), "floorf(a)")
    yield "cvt.f64.f32", Form("f64", ("f32",), "a")
    yield "cvt.rn.f32.f64", Form("f32", ("f64",), "a")


EXACT = dict([*_float_forms(), *_integer_forms(), *_choices(), *_conversions()])
"""The forms of exact instructions, by opcode."""
BOUNDS = {
    f"{name}.f32": Form("f32", ("f32", "f32"), f"limit(a, b, {sign})") for name, sign in {"min": -1, "max": 1}.items()
}
"""The same for a minimum or maximum with a constant c, which compilers make of `x < c ? x : c`. Of a NaN it is c."""
FUSED = {f"{name}.{t}": EXACT[f"{name}.rn.{t}"] for name in ("add", "sub", "mul") for t in _FLOATS} | {
    f"fma.rn.{t}": Form(t, (t, t, t), f"{name}(a, b, c)") for t, name in (("f32", "fmaf"), ("f64", "fma"))
}
"""The instructions of a compiler that may contract a·b + c, for experiments that show the consequences."""
