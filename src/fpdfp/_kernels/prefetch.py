"""Ask for rows of a matrix ahead of their use: processors do not foresee which rows a random batch has."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from fpdfp._kernels.jit import inline

#: Bytes of a line of the cache, and how many bytes are asked for at most: the nearer caches hold no more.
LINE, MOST = 64, 1 << 18


@inline
def fetch_rows(X: Any, rows: Any) -> None:
    """Have the given rows of a matrix in C order brought into the second cache; nothing is computed."""
    length = X.shape[1] * X.itemsize
    if rows.size * length <= MOST:
        for t in range(rows.size):
            for offset in range(0, length, LINE):
                fetch(X, rows[t], offset)


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing: Any, matrix: Any, row: Any, offset: Any) -> Any:
    """Ask for the line of the cache with a byte of a row."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        stride = cgutils.unpack_tuple(builder, array.strides, 2)[0]
        pointer = ir.IntType(8).as_pointer()
        place = builder.gep(
            builder.bitcast(array.data, pointer), [builder.add(builder.mul(given[1], stride), given[2])]
        )
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # to be read, not written; into the second cache, which takes more such wishes at a time than the first; data
        builder.call(function, [place, *(ir.Constant(number, value) for value in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(matrix, int64, int64), generate
