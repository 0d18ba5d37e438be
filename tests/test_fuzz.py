"""The properties of `make fuzz`, on a few seeds each."""

import random

import fuzz
import pytest


@pytest.mark.parametrize("holds", fuzz.PROPERTIES, ids=lambda one: one.__name__)
def test_it_holds_for_a_few_seeds(holds):
    for seed in range(4):
        holds(random.Random(seed))
