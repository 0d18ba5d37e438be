"""The properties of `make fuzz`, on a few seeds each."""

import random

import fuzz
import pytest


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("holds", fuzz.PROPERTIES, ids=lambda one: one.__name__)
def test_it_holds_for_a_few_seeds(holds, seed):
    holds(random.Random(seed))
