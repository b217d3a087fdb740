"""The native exact functions equal the array reference on every input tried, specials included."""

import ctypes
import re
import runpy
import shutil
import subprocess

import numpy as np
import pytest
from conftest import ROOT

from evolve import numerics
from evolve.errors import InputError, RunError
from evolve.numerics import native
from evolve.numerics.streams import Purpose, Stream

built = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")


def test_no_header_redefines_a_macro_of_another():
    # All headers are one compilation unit, so the second definition would change the code of the headers after it.
    owners = {}
    for header in sorted(ROOT.glob("evolve/*/kernels/*.h")):
        text = header.read_text()
        defined, removed = (set(re.findall(rf"^ *# *{word} (\w+)", text, re.M)) for word in ("define", "undef"))
        for macro in defined - removed:
            other = owners.setdefault(macro, header)
            assert other == header, f"{macro} is a macro of {other.name} and {header.name}: rename one, or #undef it"


@built
@pytest.mark.parametrize("name", ["tanh", "exp", "sigmoid"])
def test_equal_over_the_whole_float32_range(name):
    step = 4093  # a prime: about a million patterns, every exponent and sign, infinities and NaN
    x = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    specials = np.array([0, -0.0, 1, -1, 16, 88.73, -104, 3e38, -3e38, 1e-45, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([x, specials])
    with np.errstate(invalid="ignore"):  # signalling NaN patterns are among them
        reference, kernel = getattr(numerics, name)(x), native.apply(name, x)
    assert np.array_equal(np.isnan(reference), np.isnan(kernel))
    number = ~np.isnan(reference)
    assert reference[number].tobytes() == kernel[number].tobytes()


def words_of_every_kind():
    """Raw words by which a deviate is in the centre, in a tail, far out, or just at one of the borders."""
    borders = [0, 0.075 * 2**52, 0.925 * 2**52, 1.388794386496402e-11 * 2**52, 2**51, 2**52 - 2**11]
    near = np.concatenate([int(border) + np.arange(-(2**11), 2**11) for border in borders])
    drawn = Stream(3, Purpose.CHECK).bits(300_000)
    shifted = near.astype(np.uint64) << np.uint64(12)
    return np.concatenate([shifted, drawn, drawn >> np.uint64(40), ~(drawn >> np.uint64(40))])


@built
def test_normal_deviates_equal_those_of_the_reference():
    words = words_of_every_kind()
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    assert native.normal(words).tobytes() == numerics.normal_quantile(uniform).tobytes()


@built
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
def test_any_number_of_deviates(n):
    words = Stream(4, Purpose.CHECK).bits(40)
    assert native.normal(words[:n]).tobytes() == native.normal(words)[:n].tobytes()


def test_arrays_begin_on_a_cache_line():
    for shape in ((1, 1, 1), (3, 5, 16), (2, 0, 4)):
        array = native.aligned(*shape)
        assert array.shape == shape
        assert array.ctypes.data % 64 == 0 or not array.size
        assert not array.any()


@built
def test_only_functions_of_the_library_can_be_bound():
    assert native.bind("lanes", returns=ctypes.c_int)() == native.lanes()
    with pytest.raises(RunError, match=r"evolve_no_such_function, .* pip install -e /"):
        native.bind("no_such_function")


@built
def test_addresses_are_those_of_numpy():
    for array in (np.zeros(3), np.zeros((2, 4), np.float32), np.broadcast_to(np.float32(1), (1,)), np.zeros(0)):
        assert native.address(array) == array.ctypes.data


def test_without_kernels_none_can_be_bound(monkeypatch):
    monkeypatch.setattr(native, "load_library", lambda: None)
    with pytest.raises(RuntimeError, match="not built"):
        native.bind("lanes")


def test_the_back_end_depends_on_the_build(monkeypatch):
    assert numerics.backend("numpy") == "numpy"
    assert numerics.backend("auto") == ("native" if native.available() else "numpy")
    monkeypatch.setattr(native, "load_library", lambda: None)
    assert numerics.backend("auto") == "numpy"
    with pytest.raises(InputError, match=r"compute\.backend.*C compiler"):
        numerics.backend("native")


@built
def test_the_library_says_how_it_was_built():
    compiler, *said = native.build().split("; ")
    assert "GCC" in compiler or "lang" in compiler
    assert len(said) == 4
    assert "no fast-math" in said


def test_a_library_that_says_nothing_is_unknown(monkeypatch):
    monkeypatch.setattr(native, "load_library", lambda: None)
    assert native.build() == ""


def test_a_library_that_cannot_be_loaded_is_no_missing_library(tmp_path, monkeypatch):
    """With array operations in its place, a node of a cluster would be slow, and nobody would know why."""
    library = tmp_path / "kernels.so"
    monkeypatch.setattr(native, "library_path", lambda: library)
    assert native.load_library.__wrapped__() is None
    library.write_text("no library")
    said = r"^native kernels: .* can load, got .*kernels\.so: .* pip install -e .*\. Or delete"
    with pytest.raises(RunError, match=said):
        native.load_library.__wrapped__()


@pytest.mark.parametrize(
    "options", ["-ffast-math", "-Ofast", "-fassociative-math -fno-signed-zeros", "-funsafe-math-optimizations"]
)
def test_options_that_change_bits_are_taken_back(options):
    """Such options may stand in CFLAGS, for other packages."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    addition = "float sum(const float *a) { float s = 0; for (int i = 0; i < 64; i++) s += a[i]; return s; }"

    def machine_code(*flags):
        return subprocess.check_output([compiler, *flags, "-S", "-x", "c", "-", "-o", "-"], input=addition.encode())

    ours = runpy.run_path(str(ROOT / "setup.py"))["FLAGS"]
    assert machine_code(*options.split(), *ours) == machine_code(*ours)
    assert machine_code(*ours, "-ffast-math") != machine_code(*ours)


def test_a_library_of_fast_math_is_refused(tmp_path, monkeypatch):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    texts = {"sources": native.header_fingerprint(), "build": "GCC 12; optimized; fast-math; no fused; clones"}
    (tmp_path / "x.c").write_text("".join(f'const char evolve_{name}[] = "{text}";\n' for name, text in texts.items()))
    library = tmp_path / "fast.so"
    subprocess.run([compiler, "-shared", "-fPIC", tmp_path / "x.c", "-o", library], check=True)
    monkeypatch.setattr(native, "library_path", lambda: library)
    with pytest.raises(RunError, match=r"expected a build without -ffast-math.* Remove it from CFLAGS\. Build "):
        native.load_library.__wrapped__()


def test_a_library_of_other_headers_is_refused(tmp_path, monkeypatch):
    """Without this, new sources and an old build would give wrong numbers, or worse."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    ours = native.header_fingerprint()
    assert ours == runpy.run_path(str(ROOT / "setup.py"))["fingerprint"]()
    for number, (sources, refused) in enumerate({ours: False, "0" * 16: True, "": True}.items()):
        (tmp_path / "x.c").write_text(f'const char evolve_{"sources" if sources else "others"}[] = "{sources}";\n')
        library = tmp_path / f"{number}.so"
        subprocess.run([compiler, "-shared", "-fPIC", tmp_path / "x.c", "-o", library], check=True)
        monkeypatch.setattr(native, "library_path", lambda library=library: library)
        if refused:
            with pytest.raises(RunError, match=rf"{ours}.*{sources or 'without a fingerprint'}.*pip install -e"):
                native.load_library.__wrapped__()
        else:
            assert native.load_library.__wrapped__() is not None
