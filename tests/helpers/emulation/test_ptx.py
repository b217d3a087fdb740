"""PTX as C: each instruction does what NVIDIA's manual says, and what is not exact is refused."""

import numpy as np
import pytest

from emulation import EmulatedDevice, NotExactError, emulation_available
from emulation.instructions import FUSED
from emulation.ptx import translate

HEAD = """.version 9.0
.target sm_75
.address_size 64
.visible .entry evolve_table(
\t.param .u64 evolve_table_param_0
)
{
\t.local .align 16 .b8 \t__local_depot0[16];
\t.reg .pred \t%p<4>;
\t.reg .b16 \t%rs<4>;
\t.reg .b32 \t%r<9>;
\t.reg .f32 \t%f<9>;
\t.reg .b64 \t%rd<9>;
\t.reg .f64 \t%fd<9>;
\tld.param.u64 \t%rd1, [evolve_table_param_0];
"""
MOST = 0x7FFFFFFF
FUNCTIONS = """.func (.param .b64 func_retval0) product(
\t.param .align 4 .b8 product_param_0[8],
\t.param .b32 product_param_1
)
{
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<2>;
\tld.param.u32 \t%r1, [product_param_0+4];
\tld.param.u32 \t%r2, [product_param_1];
\tmul.wide.s32 \t%rd1, %r1, %r2;
\tst.param.b64 \t[func_retval0+0], %rd1;
\tret;

}
.func nothing()
{
\tret;

}
"""
CALL = """mov.u32 %r1, -3;
\t{ // callseq 0, 0
\t.reg .b32 temp_param_reg;
\t.param .align 4 .b8 param0[8];
\tst.param.b32 \t[param0+4], %r1;
\t.param .b32 param1;
\tst.param.b32 \t[param1+0], 4;
\t.param .b64 retval0;
\tcall.uni (retval0),
\tproduct,
\t(
\tparam0,
\tparam1
\t);
\tld.param.b64 \t%rd2, [retval0+0];
\t} // callseq 0
"""
TABLE = [  # instructions, the register that they leave a result in, and its bits
    ("add.s32 %r1, -1, 3;", "r1", 2),
    ("mov.u16 %rs1, -1; add.s16 %rs2, %rs1, %rs1; cvt.u32.u16 %r1, %rs2;", "r1", 0xFFFE),
    ("mov.u16 %rs1, -2; cvt.s32.s16 %r1, %rs1;", "r1", 0xFFFFFFFE),
    ("mov.u32 %r2, -2; cvt.s64.s32 %rd2, %r2;", "rd2", 2**64 - 2),
    ("mov.u32 %r2, -2; cvt.u64.u32 %rd2, %r2;", "rd2", 2**32 - 2),
    ("mul.lo.s32 %r1, 65537, 65537;", "r1", 65537**2 % 2**32),
    ("mul.wide.s32 %rd2, -3, 2000000000;", "rd2", 2**64 - 6 * 10**9),
    ("mul.wide.u32 %rd2, -3, 5;", "rd2", (2**32 - 3) * 5),
    ("mad.wide.s32 %rd2, -3, 5, 100;", "rd2", 85),
    ("mad.lo.s64 %rd2, -3, 5, 10;", "rd2", 2**64 - 5),
    ("mul.hi.u64 %rd2, -1, 10;", "rd2", 9),
    ("rem.s32 %r1, -7, 4;", "r1", 2**32 - 3),
    ("div.s32 %r1, -7, 4;", "r1", 2**32 - 1),
    ("div.u64 %rd2, -7, 4;", "rd2", (2**64 - 7) // 4),
    ("max.s32 %r1, -7, 4;", "r1", 4),
    ("max.u32 %r1, -7, 4;", "r1", 2**32 - 7),
    ("neg.s64 %rd2, 5;", "rd2", 2**64 - 5),
    ("not.b32 %r1, 5;", "r1", 2**32 - 6),
    ("shl.b32 %r1, 1, 31;", "r1", 2**31),
    ("shl.b32 %r1, 1, 32;", "r1", 0),
    ("shl.b64 %rd2, 1, 40;", "rd2", 2**40),
    ("shr.u32 %r1, -1, 33;", "r1", 0),
    ("shr.s32 %r1, -8, 1;", "r1", 2**32 - 4),
    ("shr.s32 %r1, -8, 99;", "r1", 2**32 - 1),
    ("shr.s64 %rd2, -8, 2;", "rd2", 2**64 - 2),
    ("shf.l.wrap.b32 %r1, 0x80000001, 2, 33;", "r1", 5),
    ("bfi.b64 %rd2, 0x1FF, 0x1000000, 4, 8;", "rd2", 0x1000FF0),
    ("bfi.b64 %rd2, 7, 9, 32, 32;", "rd2", 7 << 32 | 9),
    ("prmt.b32 %r1, 0x33221100, 0x77665544, 0x7530;", "r1", 0x77553300),
    ("prmt.b32 %r1, 0x00008000, 0, 0x9810U;", "r1", 0xFF008000),
    ("mov.b64 %rd2, {1, 2};", None, None),
    ("mov.u32 %r2, 7; mov.u32 %r3, 9; mov.b64 %rd2, {%r2, %r3};", "rd2", 9 << 32 | 7),
    ("mov.u64 %rd2, 0x900000007; mov.b64 {_, %r1}, %rd2;", "r1", 9),
    ("mov.f32 %f1, 0fBF800000;", "f1", 0xBF800000),
    ("mov.b32 %r1, 0f3F800000;", "r1", 0x3F800000),
    ("add.rn.f32 %f1, 0f3F800000, 0f33800000;", "f1", 0x3F800000),  # a tie, to even
    ("add.rn.f32 %f1, 0f3F800001, 0f33800000;", "f1", 0x3F800002),
    ("mul.rn.f32 %f1, 0f00800000, 0f3F000000;", "f1", 0x00400000),  # a denormal, not flushed
    ("div.rn.f64 %fd1, 0d3FF0000000000000, 0d4008000000000000;", "fd1", 0x3FD5555555555555),
    ("rcp.rn.f64 %fd1, 0d4008000000000000;", "fd1", 0x3FD5555555555555),
    ("sqrt.rn.f32 %f1, 0f40000000;", "f1", 0x3FB504F3),
    ("neg.f32 %f1, 0f00000000;", "f1", 0x80000000),
    ("abs.f64 %fd1, 0dC008000000000000;", "fd1", 0x4008000000000000),
    ("copysign.f32 %f1, 0f80000000, 0f3F800000;", "f1", 0xBF800000),
    ("cvt.rn.f32.f64 %f1, 0d3FF0000010000000;", "f1", 0x3F800000),  # a tie, to even
    ("cvt.f64.f32 %fd1, 0f3F800001;", "fd1", 0x3FF0000020000000),
    ("cvt.rn.f32.s32 %f1, 16777217;", "f1", 0x4B800000),
    ("cvt.rzi.s64.f64 %rd2, 0dC00C000000000000;", "rd2", 2**64 - 3),  # of -3.5
    ("cvt.rzi.s32.f32 %r1, 0fC0600000;", "r1", 2**32 - 3),  # of -3.5
    ("cvt.rzi.s32.f64 %r1, 0d41DFFFFFFFDFFFFF;", "r1", MOST),
    ("cvt.rmi.f32.f32 %f1, 0fC0600000;", "f1", 0xC0800000),
    ("min.f32 %f1, 0f40000000, 0f3F800000;", "f1", 0x3F800000),
    ("max.f32 %f1, 0f40000000, 0f3F800000;", "f1", 0x40000000),
    ("max.f32 %f1, 0f7FC00000, 0f3F800000;", "f1", 0x3F800000),  # of a NaN and a number, the number
    ("min.f32 %f1, 0fFFC00000, 0f3F800000;", "f1", 0x3F800000),
    ("max.f32 %f1, 0f80000000, 0f00000000;", "f1", 0),  # -0 is less than 0
    ("min.f32 %f1, 0f80000000, 0f00000000;", "f1", 0x80000000),
    ("max.f32 %f1, 0f00000000, 0f80000000;", "f1", 0),
    ("setp.lt.s32 %p1, -1, 1; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.lt.u32 %p1, -1, 1; selp.b32 %r1, 5, 6, %p1;", "r1", 6),
    ("setp.hs.u32 %p1, -1, 1; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.ne.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 6),
    ("setp.neu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.equ.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.equ.f32 %p1, 0f3F800000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 6),
    ("setp.ltu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.le.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 6),
    ("setp.nan.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.eq.f32 %p1, 0f80000000, 0f00000000; selp.b32 %r1, 5, 6, %p1;", "r1", 5),
    ("setp.eq.s32 %p1, 1, 1; setp.eq.s32 %p2, 1, 2; xor.pred %p3, %p1, %p2; not.pred %p3, %p3;", None, None),
    ("selp.b32 %r1, 5, 6, %p3;", "r1", 6),
    ("mov.u32 %r1, 1; setp.eq.s32 %p1, 1, 2; @%p1 mov.u32 %r1, 2; @!%p1 add.s32 %r1, %r1, 3;", "r1", 4),
    ("mov.u64 %rd3, __local_depot0; cvta.local.u64 %rd4, %rd3; mov.u32 %r2, -2;", None, None),
    ("st.local.v2.b32 [%rd3+8], {%r2, %r3}; ld.b32 %r1, [%rd4+8];", "r1", 2**32 - 2),
    ("ld.local.v2.b32 {%r4, %r5}, [%rd3+8];", "r5", 9),
    ("ld.local.s8 %r1, [%rd3+8];", "r1", 2**32 - 2),
    ("ld.local.u8 %r1, [%rd3+8];", "r1", 254),
    ("ld.local.s32 %rd2, [%rd3+8];", "rd2", 2**64 - 2),
    ("st.local.u8 [%rd3+9], 0; ld.local.u32 %r1, [%rd3+8];", "r1", 0xFFFF00FE),
    ("mov.u32 %r1, %ntid.y;", "r1", 1),
    ("mov.u32 %r1, 1; bra $L__BB0_1;\n\tmov.u32 %r1, 2;\n$L__BB0_1:\n", "r1", 1),
    (CALL, "rd2", 2**64 - 12),
    ("call.uni nothing;", None, None),
    ("mov.u32 %r1, 4;\n\t{\n\t.reg .b32 %r1;\n\tmov.u32 %r1, 5;\n\t}\n", "r1", 4),  # another register of this name
]


def kernel(*lines):
    return FUNCTIONS + HEAD + "".join(f"\t{line}\n" for line in lines) + "\tret;\n\n}\n"


@pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")
def test_what_instructions_do(monkeypatch):
    only_one = "mov.u32 %r8, %tid.x; setp.ne.s32 %p0, %r8, 0; @%p0 ret;"
    rows, stores = [row for row in TABLE if None not in row or row[1]], []
    for instructions, register, _ in TABLE:
        stores += [line for line in instructions.splitlines() if "{1, 2}" not in line]
        if register:
            stores.append(f"st.global.b{64 if 'd' in register else 32} [%rd1], %{register}; add.s64 %rd1, %rd1, 8;")
    monkeypatch.setattr("emulation.compiled.ptx", lambda *_: kernel(only_one, *stores))
    device = EmulatedDevice()
    found, queue = np.zeros(len(rows), np.uint64), device.queue()
    memory = device.allocate(found.nbytes)
    queue.launch("table", 1, 1, memory.address)
    queue.download(memory.address, found)
    queue.wait()
    wrong = [(row, hex(bits)) for row, bits in zip(rows, found.tolist(), strict=True) if row[2] != bits]
    assert not wrong


@pytest.mark.parametrize(
    "instruction",
    [
        "fma.rn.f32 %f1, %f2, %f3, %f4;",
        "mul.f32 %f1, %f2, %f3;",  # may be contracted
        "add.rn.ftz.f32 %f1, %f2, %f3;",
        "setp.lt.ftz.f32 %p1, %f2, %f3;",
        "div.approx.f32 %f1, %f2, %f3;",
        "div.full.f32 %f1, %f2, %f3;",
        "ex2.approx.f32 %f1, %f2;",
        "sqrt.approx.f32 %f1, %f2;",
        "add.rz.f32 %f1, %f2, %f3;",
        "min.f32 %f1, %f2, %f3;",  # drops NaN
        "cvt.rzi.u32.f32 %r1, %f2;",  # saturates
        "atom.global.add.f32 %f1, [%rd1], %f2;",
        "red.global.add.f32 [%rd1], %f2;",
        "shfl.sync.down.b32 %r1, %r2, 1, 31, -1;",
        "call.uni (retval0), somebody, (param0);",
    ],
)
def test_what_is_refused(instruction):
    with pytest.raises(NotExactError) as error:
        translate(kernel(f"@%p1 {instruction}"))
    assert str(error.value).startswith(f"evolve_table: `@%p1 {instruction[:-1]}` is not known")


def test_what_is_no_kernel_is_refused():
    for text in ("", FUNCTIONS):
        with pytest.raises(NotExactError, match="expected PTX that has kernels"):
            translate(text)


def in_function(instruction):
    return translate(kernel("ret;").replace(".func nothing()\n{\n", f".func nothing()\n{{\n\t{instruction}\n"))


def test_what_functions_may_not_do():
    with pytest.raises(NotExactError, match=r"^nothing: `fma.rn.f32 %f1, %f2, %f3, %f4` is not known"):
        in_function("fma.rn.f32 %f1, %f2, %f3, %f4;")


def test_a_barrier_of_a_function_is_none_of_the_kernel():
    assert "barrier(201, 0, 0);" in in_function("bar.sync 0;")["evolve_table"]
    assert "barrier(1, 0, 0);" in translate(kernel("bar.sync 0;"))["evolve_table"]


def test_fused_instructions_may_be_allowed():
    assert "fmaf(a, b, c)" in translate(kernel("fma.rn.f32 %f1, %f2, %f3, %f4;"), FUSED)["evolve_table"]
