"""Winograd's convolutions give the direct ones' results, in float32 to a few units of the last place."""

from __future__ import annotations

import numpy as np
import pytest

from wmsched.relax.choices.winograd import MATRICES, transformed_weights


@pytest.mark.parametrize("m", MATRICES)
def test_the_matrices_compute_a_convolution_of_one_tile(m):
    own, random = MATRICES[m], np.random.default_rng(0)
    data, kernel = random.normal(size=(own.places, own.places)), random.normal(size=(3, 3))
    products = (own.g @ kernel @ own.g.T) * (own.b @ data @ own.b.T)
    direct = [[np.sum(data[i : i + 3, j : j + 3] * kernel) for j in range(m)] for i in range(m)]
    assert own.results == m and own.places == m + 2
    np.testing.assert_allclose(own.a @ products @ own.a.T, direct, rtol=1e-12)


def test_weights_are_transformed_for_each_pair_of_channels():
    weights = np.random.default_rng(0).normal(size=(3, 3, 2, 5)).astype("float32")
    g = MATRICES[2].g
    found = transformed_weights(weights, MATRICES[2])
    assert found.shape == (16, 2, 5) and found.dtype == np.float32
    np.testing.assert_allclose(found[:, 1, 4].reshape(4, 4), g @ weights[:, :, 1, 4] @ g.T, rtol=1e-6)
