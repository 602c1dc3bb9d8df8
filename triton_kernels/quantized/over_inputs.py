"""Quantises the results of a pass, for inputs of any layout."""

from collections.abc import Sequence

from torch import Tensor

from gelu_kernels.triton_kernels.quantized.in_bands import in_bands
from gelu_kernels.triton_kernels.quantized.inputs import (
    NONE,
    SIZE,
    Inputs,
    Pointer,
    data_type,
    in_vectors,
    rounds_up,
    start,
)
from gelu_kernels.triton_kernels.quantized.recipe import Recipe, Result, clear
from gelu_kernels.triton_kernels.tuning import map_tiles, whole_row_tiles


def with_given_scale(
    op: str, result: Result, inputs: Inputs, recipe: Recipe, scale: Tensor
) -> None:
    """TensorWise."""
    data, amax, _, _ = result
    clear(recipe, result)
    if data.numel() == 0:
        return
    inputs = in_vectors(inputs)
    (rows, columns), itemsize = inputs.x.shape, inputs.x.itemsize
    tiles = map_tiles(rows, columns, itemsize, inputs.matrices)
    results = (data, data_type(inputs)), (amax, "*i32:16"), (scale, "*fp32")
    numbers = (rows, "i64"), (columns, SIZE)
    compiled = recipe.compiled(*tiles[:3], is_cast=inputs.is_cast)
    start(op, "given.quantize_tiles", tiles.grid, results, inputs, numbers, (compiled,))


def with_own_scales(
    op: str,
    results: Sequence[Result],
    inputs: Inputs,
    recipe: Recipe,
    *,
    dbias: Tensor | None = None,
) -> None:
    """Two results may be the halves of one."""
    are_halves = len(results) == 2 and results[1] is results[0]
    for result in results[:1] if are_halves else results:
        clear(recipe, result)
    if inputs.x.numel() == 0:
        if dbias is not None:
            dbias.zero_()
        return
    inputs = in_vectors(inputs)
    columns = inputs.x.size(1)
    width = 2 * columns if are_halves else columns
    shift = width - columns
    if recipe.scaling == "RowWise" and not recipe.along_columns:
        in_rows(op, results, inputs, recipe, width, shift)
    else:
        in_bands(op, results, inputs, recipe, width, shift, dbias)


def in_rows(
    op: str, results: Sequence[Result], inputs: Inputs, recipe: Recipe, width: int, shift: int
) -> None:
    (rows, columns), itemsize = inputs.x.shape, inputs.x.itemsize
    tiles = whole_row_tiles(rows, columns, itemsize, inputs.matrices)
    pointers: list[Pointer] = []
    for data, scales, _, _ in results:
        pointers += [(data, data_type(inputs)), (scales, "*fp32:16")]
    if shift:
        pointers[-1] = NONE
    numbers = (
        (rows, "i64"),
        (columns, SIZE),
        (width, SIZE),
        (shift, SIZE),
        rounds_up(recipe),
    )
    compiled = recipe.compiled(*tiles[:3], is_cast=inputs.is_cast)
    compiled_in = compiled, tiles.columns >= columns
    padded = (*pointers, *[NONE] * (4 - len(pointers)))
    start(op, "rows.quantize_rows", tiles.grid, padded, inputs, numbers, compiled_in)
