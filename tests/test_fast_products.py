"""The choice of who multiplies: no less exact, and put back."""

import pytest
import torch
from common import random

from companion import device, fast_products
from companion.device import matmul_precision, onednn_is_as_exact


@pytest.fixture(autouse=True)
def measured_anew(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    onednn_is_as_exact.cache_clear()
    yield
    onednn_is_as_exact.cache_clear()


@pytest.fixture
def taken_for_exact(monkeypatch):
    monkeypatch.setattr(device, "onednn_is_as_exact", lambda: True)


@pytest.mark.parametrize("shape", [(300, 200), (16, 60, 60), (1, 700)])
def test_products_are_float32_s_on_every_processor(shape):
    """A sum of n products is off by n roundings of 2^-24 each, at most."""
    a = random(*shape)
    b = random(*shape, seed=1).mT
    exact = a.double() @ b.double()
    most = shape[-1] * 2**-24 * (a.abs().double() @ b.abs().double())
    with fast_products():
        assert ((a @ b).double() - exact).abs().le(most).all()


def test_where_it_would_be_less_exact_nothing_changes(monkeypatch):
    """As on a processor with tiles, where "medium" rounds to bfloat16."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    product = torch.Tensor.__matmul__

    def rounded(a, b):
        if torch.get_float32_matmul_precision() == "medium":
            a, b = a.bfloat16().float(), b.bfloat16().float()
        return product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    assert not onednn_is_as_exact()
    with fast_products():
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("taken_for_exact")
def test_it_is_put_back_whatever_happens():
    before = torch.backends.mkldnn.matmul.fp32_precision
    with pytest.raises(ZeroDivisionError), fast_products():
        assert torch.get_float32_matmul_precision() == "medium"
        1 / 0  # noqa: B018
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.usefixtures("taken_for_exact")
def test_a_precision_that_was_chosen_stays(monkeypatch):
    with matmul_precision("high"), fast_products():
        assert torch.get_float32_matmul_precision() == "high"

    # Chosen for one library alone, which PyTorch's older question doesn't answer.
    own = torch.backends.mkldnn.matmul
    before = own.fp32_precision
    own.fp32_precision = "bf16"
    try:
        with fast_products():
            assert own.fp32_precision == "bf16"
        assert own.fp32_precision == "bf16"
    finally:
        own.fp32_precision = before


@pytest.mark.usefixtures("taken_for_exact")
def test_beside_an_accelerator_nothing_changes(monkeypatch):
    """Its products would be rounded to 10 bits."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with fast_products():
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("taken_for_exact")
def test_it_may_stand_over_a_function():
    @fast_products()
    def read():
        return torch.get_float32_matmul_precision()

    assert read() == read() == "medium"
    assert torch.get_float32_matmul_precision() == "highest"
