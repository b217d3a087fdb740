"""What tests of numbers share: they are the same with and without kernels."""

import pytest

from evolve.numerics import native


@pytest.fixture(scope="module", params=["native", "arrays"])
def with_and_without_kernels(request):
    """Run what uses it twice; once as if no kernels had been built."""
    if request.param == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "arrays":
            patch.setattr(native, "available", lambda: False)
        yield
