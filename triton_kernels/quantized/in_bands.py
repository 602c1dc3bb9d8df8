"""Starts the kernels of ``bands`` and ``amax``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.bias_gradient import add_partial_sums
from gelu_kernels.triton_kernels.quantized.inputs import (
    NONE,
    SIZE,
    Inputs,
    Pointer,
    data_type,
    rounds_up,
    start,
)
from gelu_kernels.triton_kernels.quantized.recipe import Recipe, Result
from gelu_kernels.triton_kernels.tuning import band_tiles, column_sum_tiles, group_tiles


def scale_tensor(scales: Tensor, recipe: Recipe) -> Pointer:
    if scales.numel() == 0:
        return NONE
    if recipe.packed:  # as bytes: from the first word on, in the order of memory
        words = scales.untyped_storage().nbytes() // scales.itemsize
        return scales.as_strided((words,), (1,)), "*u8"
    return scales, "*fp32" if recipe.layout == "columns" else "*u8"


def in_bands(
    op: str,
    results: Sequence[Result],
    inputs: Inputs,
    recipe: Recipe,
    width: int,
    shift: int,
    dbias: Tensor | None,
) -> None:
    (rows, columns), itemsize = inputs.x.shape, inputs.x.itemsize
    ends = recipe.ends
    groups = 0 if ends is None else ends.numel()
    partial, sum_blocks = None, 1
    if recipe.along_columns or dbias is not None:
        least = recipe.block if recipe.along_rows else 0
        height = recipe.block or 32
        has_sums = dbias is not None
        tiles = band_tiles(rows, columns, itemsize, height, least, groups, has_sums)
        if dbias is not None:
            sums = column_sum_tiles(rows, columns, itemsize)
            sum_blocks = max(tiles.rows // sums.block_rows, 1)
            shape = sums.blocks, columns
            partial = torch.empty(shape, dtype=torch.float32, device=dbias.device)
    else:
        # Two vectors, also of three inputs: with one, half of the instructions are overhead.
        tiles = group_tiles(rows, columns, itemsize, min(inputs.matrices, 2), groups)
    sizes = (
        (rows, SIZE if recipe.along_columns else "i64"),
        (columns, SIZE),
        (tiles.block_rows, SIZE if tiles.rows % 16 == 0 else "i64"),
        (width, SIZE),
        (shift, SIZE),
        (max(groups, 1), "i32"),
    )
    compiled = recipe.compiled(*tiles[:3], is_cast=inputs.is_cast, sum_blocks=sum_blocks)
    offsets = (ends, "*i32")
    amax: list[Pointer] = [NONE] * 4
    if recipe.scaling == "RowWise":
        amax = memory_for_amax(inputs, recipe, max(groups, 1), width, shift)
        find = band_tiles(rows, columns, itemsize, 32, 0, groups, has_sums=True)
        find_in = recipe.compiled(*find[:3], is_cast=inputs.is_cast)
        find_sizes = (*sizes[:2], (find.block_rows, SIZE), *sizes[3:])
        start(op, "amax.find_amax", find.grid, (*amax, offsets), inputs, find_sizes, (find_in,))
    pointers: list[Pointer] = []
    for k, (data, scales, column_data, column_scales) in enumerate(results):
        pointers += [
            (data if data.numel() else None, data_type(inputs)),
            scale_tensor(scales, recipe),
            (column_data if column_data.numel() else None, "*u8:16"),
            scale_tensor(column_scales, recipe),
            *amax[2 * k : 2 * k + 2],
        ]
    pointers += [NONE] * (12 - len(pointers))
    start(
        op,
        "bands.quantize_bands",
        tiles.grid,
        (*pointers, offsets, (partial, "*fp32:16")),
        inputs,
        (*sizes, rounds_up(recipe)),
        (compiled,),
        tiles.threads,
    )
    if partial is not None and dbias is not None:
        add_partial_sums(op, partial, dbias)


def memory_for_amax(
    inputs: Inputs, recipe: Recipe, groups: int, width: int, shift: int
) -> list[Pointer]:
    """For rows and columns of the first result and of the second; halves share it."""

    def zeros(count: int) -> Pointer:
        return torch.zeros(count, dtype=torch.int32, device=inputs.x.device), "*i32"

    def of_result() -> list[Pointer]:
        rows = zeros(inputs.x.size(0)) if recipe.along_rows else NONE
        return [rows, zeros(groups * width)]

    first = of_result()
    if not inputs.has_two_results:
        return [*first, NONE, NONE]
    return first * 2 if shift else [*first, *of_result()]
