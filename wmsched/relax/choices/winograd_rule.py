"""Which convolutions are computed by Winograd without a measurement: operations saved against bytes moved.

Needs no TVM. The constants were set against timed regions of ResNet-50 on two cores of a Xeon (Emerald
Rapids), on the safe side. Images of 56, 28 and 14 pixels gained more than is expected here. Those of 7, with
much larger weights, gained nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["expected_gain", "tile_by_rule"]

TILES = (2, 4)  # results of a tile along one axis
KERNEL = 3
BYTES = 4  # of a float32
OPERATIONS_A_BYTE = 5.0  # that a direct convolution does while a transform moves one byte
OPERATIONS_A_WEIGHT_BYTE = 4.0  # while a byte of weights comes from memory, fetched ahead
HALF_DEPTH = 32  # channels with which a product does half of a direct convolution's operations a second
HALF_ROWS = 4  # tiles with which it does
MAX_BYTES = 64 << 20  # of the transformed data or of the products: beyond, they leave every cache
MIN_GAIN = 1.4  # expected; below it a convolution stays direct


def expected_gain(data: Sequence[int], result: Sequence[int], m: int) -> float:
    """Return how many times as fast as a direct convolution Winograd's F(m, 3) is expected to be.

    Parameters
    ----------
    data, result : (N, H, W, C)
        Shapes; the kernel is 3 by 3, the stride 1.
    """
    count, height, width, inputs = data
    _, rows, columns, outputs = result
    places = (m + KERNEL - 1) ** 2
    tiles = count * -(-rows // m) * -(-columns // m)
    if BYTES * places * tiles * max(inputs, outputs) > MAX_BYTES:
        return 0.0
    direct = 2.0 * KERNEL**2 * count * rows * columns * inputs * outputs
    product = 2.0 * places * tiles * inputs * outputs * (1 + HALF_DEPTH / inputs) * (1 + HALF_ROWS / tiles)
    own = count * (height * width * inputs + rows * columns * outputs)
    moved = OPERATIONS_A_BYTE * BYTES * (own + 2 * places * tiles * (inputs + outputs))
    weights = OPERATIONS_A_WEIGHT_BYTE * BYTES * (places - KERNEL**2) * inputs * outputs
    return direct / (product + moved + weights)


def tile_by_rule(data: Sequence[int], result: Sequence[int]) -> int:
    """Return the results of a tile along one axis, 2 or 4; 0 where a convolution stays direct."""
    gains = {m: expected_gain(data, result, m) for m in TILES}
    best = max(gains, key=lambda m: gains[m])
    return best if gains[best] >= MIN_GAIN else 0
