"""Shapes of a convolution or product, and the blocks that its kernel computes at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wmsched.relax.int8.dots import TILE, Dot

Pair = tuple[int, int]

TILE_ROWS = 16  # rows of an AMX tile
TILE_BYTES = 64  # bytes of such a row
MAX_IDLE_SHARE = 0.1  # of the threads' time that an uneven split of the work may leave
MAX_NEAR_BYTES = 1 << 20  # of weights that a core keeps near while blocks of rows pass
MIN_SHARED_BLOCKS = 2  # column blocks of a task that shares its rows with others
#: Rows of the register tile by its number of 16-column tiles, for 32 vector registers and for 16.
ROWS_OF_32_REGISTERS = {1: 16, 2: 12, 3: 8}
ROWS_OF_16_REGISTERS = {1: 6}


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Convolution with channels last; a product is one of 1 by 1 pixel.

    Parameters
    ----------
    padding : tuple of int
        Top, left, bottom, right.
    zero : int
        The number that padding holds.
    """

    batch: int
    height: int
    width: int
    channels: int
    outputs: int
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    zero: int = 0

    def _out(self, extent: int, axis: int) -> int:
        padded = extent + self.padding[axis] + self.padding[axis + 2]
        return (padded - self.dilation[axis] * (self.kernel[axis] - 1) - 1) // self.stride[axis] + 1

    @property
    def out_height(self) -> int:
        """Rows of the result's image."""
        return self._out(self.height, 0)

    @property
    def out_width(self) -> int:
        """Columns of the result's image."""
        return self._out(self.width, 1)

    @property
    def rows(self) -> int:
        """Pixels of the result, which are the rows of the product."""
        return self.batch * self.out_height * self.out_width

    @property
    def depth(self) -> int:
        """Products in each sum."""
        return self.kernel[0] * self.kernel[1] * self.channels

    @property
    def direct(self) -> bool:
        """Whether a row of the product is a pixel of the data, as it lies there."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.padding)

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.rows * self.depth * self.outputs

    @property
    def words(self) -> str:
        """Say what is computed."""
        if self.width == 1 and self.kernel == (1, 1):
            return f"product of {self.rows} x {self.depth} by {self.depth} x {self.outputs}"
        window = " x ".join(map(str, self.kernel)).replace(" ", "")
        result = f"{self.batch} x {self.out_height} x {self.out_width} x {self.outputs}"
        return f"{window} convolution of {self.channels} channels to {result}"


@dataclass(frozen=True, kw_only=True)
class Blocking:
    """How a kernel divides its product.

    Parameters
    ----------
    rows : int
        Of a block; the last block overlaps the one before, which computes the same.
    columns : int
        Tiles of 16 columns in a block.
    step : int
        Elements of a row that one dot product of the block takes: 4 or 2, and up to 64 bytes in AMX.
    depth : int
        Elements of a row with padding, a multiple of `step`.
    gathered : bool
        Whether rows are copied to scratch memory first.
    chunks : int
        Parts of the columns, which are tasks of their own. Rows are gathered for all of them beforehand.
    held : bool
        Whether a task is one block of columns and all rows, gathered beforehand: weights are read once.
    """

    rows: int
    columns: int
    step: int
    depth: int
    gathered: bool
    chunks: int
    held: bool = False


def tiles_of(outputs: int) -> int:
    """Return the number of 16-column tiles of a product."""
    return -(-outputs // TILE)


def blocking(shape: Geometry, dot: Dot, threads: int, given: str = "") -> Blocking:
    """Return the blocks of a product for a processor's dot products and a number of threads.

    Parameters
    ----------
    given : str
        Type of the data; by default the dot product's. Others than its operands' are gathered.
    """
    as_it_lies = (given or dot.given) == dot.element
    tiles = tiles_of(shape.outputs)
    if dot.amx:
        step, depth, gathered = _amx_steps(shape, dot, as_it_lies)
        rows = min(shape.rows, TILE_ROWS if shape.rows < 2 * TILE_ROWS else 2 * TILE_ROWS)
        columns = min(tiles, 2)
    else:
        step = dot.unit
        depth = -(-shape.depth // step) * step
        gathered = not shape.direct or depth != shape.depth or not as_it_lies
        registers = ROWS_OF_32_REGISTERS if dot.lanes == TILE else ROWS_OF_16_REGISTERS
        columns = next(n for n in sorted(registers, reverse=True) if tiles % n == 0)
        if columns == 1 and tiles > 1 and 2 in registers:
            columns = 2  # the last block overlaps the one before
        rows = min(shape.rows, registers[columns])
    blocks, parts = -(-shape.rows // rows), -(-tiles // columns)
    return Blocking(
        rows=rows,
        columns=columns,
        step=step,
        depth=depth,
        gathered=gathered,
        chunks=_chunks(blocks, parts, threads),
        held=dot.real and _is_held(shape, dot, depth, blocks) and _idle(parts, threads) <= MAX_IDLE_SHARE,
    )


def _is_held(shape: Geometry, dot: Dot, depth: int, blocks: int) -> bool:
    """Whether weights are too many to be read again for each block of rows, and more than the rows."""
    weights, rows = tiles_of(shape.outputs) * TILE * depth * dot.size, shape.rows * depth * dot.size
    return blocks > 1 and weights > MAX_NEAR_BYTES and rows <= weights


def _amx_steps(shape: Geometry, dot: Dot, as_it_lies: bool) -> tuple[int, int, bool]:
    """Return elements of a step, of a row, and whether rows are gathered."""
    most = TILE_BYTES // dot.size
    fits = [step for step in range(most, dot.unit - 1, -dot.unit) if shape.depth % step == 0]
    if as_it_lies and shape.direct and fits and (fits[0] >= most // 2 or shape.depth < most):
        return fits[0], shape.depth, False
    steps = -(-shape.depth // most)
    step = -(-math.ceil(shape.depth / steps) // dot.unit) * dot.unit
    return step, steps * step, True


def _chunks(blocks: int, parts: int, threads: int) -> int:
    """Return the fewest parts of the columns with which all threads have as much to do."""
    best, least = 1, _idle(blocks, threads)
    for chunks in range(2, max(parts // MIN_SHARED_BLOCKS, 1) + 1):
        if least <= MAX_IDLE_SHARE:
            break
        if parts % chunks and parts // chunks < 4:
            continue  # the last chunk would have much less
        idle = _idle(blocks * chunks, threads)
        if idle < least:
            best, least = chunks, idle
    return best


def _idle(tasks: int, threads: int) -> float:
    return 1 - tasks / (-(-tasks // threads) * threads)
