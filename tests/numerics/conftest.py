"""Shared fixtures of the tests of numerics: the numbers are the same with and without kernels."""

import pytest

from evolve.numerics import native


@pytest.fixture(scope="module", params=["native", "arrays"])
def with_and_without_kernels(request):
    """Run a test twice, with the kernels and as if they had not been built."""
    if request.param == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "arrays":
            patch.setattr(native, "available", lambda: False)
        yield
