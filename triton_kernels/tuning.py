"""How kernels divide their work over a GPU. These numbers change the speed but no result, except
for the blocks of the column sums.

csrc/cuda/tuning.h has the same numbers, for the same reasons. Nothing is tuned at a user's first
call: that would take seconds, and kernels that wait for memory gain little from it.
"""

from functools import lru_cache
from typing import NamedTuple

THREADS = 256  # of a program: small programs leave no processor idle at their start and end
VECTOR_BYTES = 16  # one access of a thread
SEGMENT_BYTES = 32 * VECTOR_BYTES  # one access of a warp

# Vectors that a thread loads from each input before it computes, by the number of inputs. A
# bandwidth of 3 TB/s times a latency of 0.7 us needs 16 kB in flight on each of an H100's 132
# processors.
VECTORS = {1: 4, 2: 2, 3: 1}

# Vectors of a thread in the same columns, where there are a location and a scale: predicted for the
# forward in 16 bits, 80 to 98 % of a copy's speed in place of 73 to 94 with four.
SCALED_ROWS = 8

# Octets that a thread loads before it computes. In 16 bits, with two operands, twice as many:
# predicted for dropout of a gated linear unit, 91 % of a copy's speed in place of 81. With one
# operand ptxas would issue four loads one at a time.
OCTETS = 2
OPERAND_BYTES = 16  # of an element; with more, one octet: three float64 take 160 registers

# The SOI map: threads of a program, so few that 72 registers leave room for 28 warps on a processor
# in place of 24. In 16 bits a thread's octets share what it works out from a bias, or from a
# location and a scale: of 4, 6 and 8 octets, 8 are predicted fastest.
DRAW_THREADS = 128
DRAW_OCTETS, DRAW_OCTETS_BESIDE = 4, 8
# Registers of a thread on compute capability 9.0: the fewest without a spill. Others would spill.
DRAW_REGISTERS, DRAW_REGISTERS_BESIDE, DRAW_REGISTERS_FP16_SCALED = 72, 96, 128

# In the forward of a coded derivative a thread has as many octets as these bytes have elements: in
# 16 bits eight, with a predicted speed of 90 to 96 % of a copy's.
CODED_BYTES = 16

# In a small tensor, one vector or octet for each thread reaches more processors.
SMALL_BYTES = 2**21

PARTIAL_COLUMNS = 32  # of a program that adds partial sums: a segment of float32 is 128 columns


class Tiles(NamedTuple):
    rows: int  # of a tile
    columns: int
    columns_first: bool
    grid: tuple[int, int, int]


def _ceil(n: int, d: int) -> int:
    return -(-n // d)


def _power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def _grid(row_blocks: int, column_blocks: int) -> tuple[bool, tuple[int, int, int]]:
    """Whether the grid's first side runs along the columns, and the grid. The longer side comes
    first, as it may have 2^31 programs, the other one 65,535."""
    sides = row_blocks, column_blocks
    return column_blocks > row_blocks, (max(sides), min(sides), 1)


@lru_cache(1024)
def map_tiles(rows: int, columns: int, itemsize: int, inputs: int, along: int = 1) -> Tiles:
    """`along` is the number of vectors along the columns that a kernel may have. With two, a
    location and a scale, the inverse of the scale is computed once for all of a thread's vectors,
    which are in the same columns."""
    has_scale = along == 2
    vectors = SCALED_ROWS if has_scale else VECTORS[inputs]
    if rows * columns * itemsize <= SMALL_BYTES or (has_scale and rows == 1):
        vectors = 1
    row = THREADS * VECTOR_BYTES // itemsize
    return _tiles(rows, columns, itemsize, row * vectors, row if has_scale else row * vectors)


@lru_cache(1024)
def octet_tiles(rows: int, columns: int, itemsize: int, operands: int) -> Tiles:
    """Tiles of whole octets, if rows consist of them. The operands are x and the vectors."""
    octets = OCTETS
    if rows * columns * itemsize <= SMALL_BYTES or operands * itemsize > OPERAND_BYTES:
        octets = 1
    elif itemsize == 2 and operands == 2:
        octets = 2 * OCTETS
    elements = THREADS * octets * 8
    return _tiles(rows, columns, itemsize, elements, elements)


@lru_cache(1024)
def draw_tiles(rows: int, columns: int, itemsize: int, is_alone: bool, vectors: int) -> Tiles:
    """Tiles of whole octets for the SOI map. Where vectors lie along the columns, a thread's octets
    are below each other."""
    octets = OCTETS
    if rows * columns * itemsize <= SMALL_BYTES or (1 + vectors) * itemsize > OPERAND_BYTES:
        octets = 1
    elif itemsize == 2:
        octets = DRAW_OCTETS if is_alone else DRAW_OCTETS_BESIDE
    width = DRAW_THREADS * 8
    return _tiles(rows, columns, itemsize, width * octets, width if vectors else width * octets)


@lru_cache(1024)
def coded_tiles(rows: int, columns: int, itemsize: int) -> Tiles:
    """Like ``octet_tiles``, for the forward of a coded derivative."""
    is_small = rows * columns * itemsize <= SMALL_BYTES
    elements = THREADS * 8 * (1 if is_small else CODED_BYTES // itemsize)
    return _tiles(rows, columns, itemsize, elements, elements)


def _tiles(rows: int, columns: int, itemsize: int, elements: int, most_columns: int) -> Tiles:
    if rows == 1:
        width = elements
    else:
        # The width of at least a segment that wastes least; among equals, the greatest.
        least = min(_power_of_two(columns), SEGMENT_BYTES // itemsize)
        widths = [least << k for k in range((most_columns // least).bit_length())]
        width = min(reversed(widths), key=lambda w: _ceil(columns, w) * w)
    height = elements // width
    return Tiles(height, width, *_grid(_ceil(rows, height), _ceil(columns, width)))


@lru_cache(1024)
def whole_row_tiles(rows: int, columns: int, itemsize: int, inputs: int) -> Tiles:
    """Tiles for programs that go over whole rows. A tile is as wide as a row while registers
    suffice for its results; wider rows are computed twice."""
    vectors = 1 if rows * columns * itemsize <= SMALL_BYTES else VECTORS[inputs]
    elements = THREADS * vectors * VECTOR_BYTES // itemsize
    width = _power_of_two(columns)
    if width > 4 * elements:
        width = elements
    height = max(elements // width, 1)
    return Tiles(height, width, False, (_ceil(rows, height), 1, 1))


GLU_LANES = 256  # as in csrc/gates/glu_rows.h


@lru_cache(1024)
def glu_sum_tiles(rows: int, columns: int, itemsize: int, inputs: int) -> Tiles:
    """Tiles as wide as all lanes, or as the columns; a program goes over whole rows."""
    width = min(_power_of_two(columns), GLU_LANES)
    height = THREADS * VECTORS[inputs] * VECTOR_BYTES // itemsize // width
    return Tiles(height, width, False, (_ceil(rows, height), 1, 1))


class ColumnSumTiles(NamedTuple):
    block_rows: int
    blocks: int
    columns: int  # of a tile
    columns_first: bool
    grid: tuple[int, int, int]


@lru_cache(1024)
def column_sum_tiles(rows: int, columns: int, itemsize: int) -> ColumnSumTiles:
    # As in csrc/gates/column_sums.h, which says why. These numbers do change the bits of a sum.
    block_rows = min(max(_power_of_two(_ceil(rows, 64)), 32), 256)
    width = min(_power_of_two(columns), SEGMENT_BYTES // itemsize)
    blocks = _ceil(rows, block_rows), _ceil(columns, width)
    columns_first, grid = _grid(*blocks)
    return ColumnSumTiles(block_rows, blocks[0], width, columns_first, grid)


class BandTiles(NamedTuple):
    rows: int  # of a tile
    columns: int
    columns_first: bool
    grid: tuple[int, int, int]
    block_rows: int  # of a program
    threads: int


@lru_cache(1024)
def band_tiles(
    rows: int, columns: int, itemsize: int, height: int, least: int, groups: int, has_sums: bool
) -> BandTiles:
    """Tiles of this height that are at least `least` columns wide. A program has one tile, or with
    sums or maxima over rows (`has_sums`) all tiles of a block of rows, which may be shorter than a
    tile. Each group starts a new tile.

    More than two vectors for each thread leave no registers for a second program on a processor;
    with one, half of the instructions are overhead of the tile. Bands of 128 rows take four vectors
    in 16 bits, and twice the threads where blocks along the rows widen the tile to 128 columns."""
    is_small = rows * columns * itemsize <= SMALL_BYTES
    vectors = (1 if is_small else 2) * (2 if height > 32 else 1)
    width = max(THREADS * vectors * VECTOR_BYTES // itemsize // height, least)
    width = min(width, _power_of_two(columns))
    threads = max(THREADS, min(height * width // 32, 2 * THREADS))
    return _bands(rows, columns, itemsize, (height, width), groups, has_sums, threads)


@lru_cache(1024)
def group_tiles(rows: int, columns: int, itemsize: int, inputs: int, groups: int) -> BandTiles:
    """Like ``map_tiles``, but in groups."""
    size = map_tiles(rows, columns, itemsize, inputs)[:2]
    return _bands(rows, columns, itemsize, size, groups, False, THREADS)


def _bands(
    rows: int,
    columns: int,
    itemsize: int,
    tile: tuple[int, int],
    groups: int,
    has_sums: bool,
    threads: int,
) -> BandTiles:
    height, width = tile
    sums = column_sum_tiles(rows, columns, itemsize).block_rows
    block_rows = max(sums, height) if has_sums and not groups else height
    # A group's end may cut a band into two.
    bands = rows // height + groups if groups else _ceil(rows, block_rows)
    columns_first, grid = _grid(bands, _ceil(columns, width))
    return BandTiles(height, width, columns_first, grid, block_rows, threads)
