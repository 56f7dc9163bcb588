"""Error pages: types and shapes (D03)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0301": Page(
        "types that do not fit together",
        "An operation takes tensors whose dtypes and sizes agree, and these do not. Two different named "
        "sizes never agree, and nothing is converted silently. The message names both types: convert, "
        "transpose or broadcast one of them.",
        "x @ w           # f32[B, 784] by f32[10, 784]",
        "x @ transpose(w)",
    ),
    "D0302": Page(
        "no meaning for this dtype",
        "The operation is defined for other kinds of elements: a sine of integers, a shift of floats or "
        "a sum of bools is none. Convert first.",
        "sum(x > 0)",
        "sum(i32(x > 0))",
    ),
    "D0303": Page(
        "a reshape to another number of elements",
        "A reshape keeps all elements in row-major order, so both shapes have the same size. With named "
        "sizes they must be equal for every value of them.",
        "reshape(x, [B, 100])    # x is f32[B, 28, 28]",
        "reshape(x, [B, 784])",
    ),
    "D0304": Page(
        "a broadcast that does not fit",
        "A tensor is repeated along missing axes and along axes whose size is the literal 1, aligned at "
        "the right. Any other axis keeps its size; a named size is never taken for 1.",
        "x + b           # f32[B, 10] and f32[B]",
        "x + b[:, new]",
    ),
    "D0305": Page(
        "no such axis",
        "Axes are counted from 0, or from -1 backwards, and an operation names each one at most once.",
        "sum(x, axis=2)          # x is f32[B, 10]",
        "sum(x, axis=1)",
    ),
    "D0306": Page(
        "a part that is not inside its tensor",
        "A slice, pad or selection with sizes known when compiling goes past the end of the axis, or "
        "counts below 0.",
        "x[0:12]                 # x is f32[10]",
        "x[0:10]",
    ),
    "D0307": Page(
        "tensors that cannot be concatenated",
        "Tensors are put one after the other along one axis; their dtypes, their numbers of axes and all "
        "other sizes are equal.",
    ),
    "D0308": Page(
        "indices that do not fit",
        "Index tensors are integers, all of one dtype and shape, one for each indexed axis; updates have "
        "the type of the indexed places; a mask is one bool for each place along its axis.",
    ),
    "D0309": Page(
        "a start that is no number",
        "A part whose place is computed begins at one i64 for each axis.",
    ),
    "D0310": Page(
        "nothing to choose from",
        "The largest or smallest element of an axis of size 0 stands nowhere. `max` and `min` of nothing "
        "are the lowest and highest value of the dtype.",
    ),
    "D0311": Page(
        "an einsum that cannot be read",
        "One group of labels for each tensor, a letter for each axis (`..` for any leading axes), then an "
        "arrow and the labels of the result, each of them once. A label has one size.",
        'einsum("ij,jk", "ik", a, b)',
        'einsum("ij,jk->ik", a, b)',
    ),
    "D0312": Page(
        "a window that does not fit",
        "The kernel of a convolution or pool reaches further than its input with the padding, has a step "
        "below 1, or its padding is not less than itself.",
        "max_pool2d(x, 5)        # x is f32[B, 4, 4, C]",
        "max_pool2d(x, 4)",
    ),
    "D0313": Page(
        "channels that do not fit",
        "A convolution takes as many channels as its input has; with groups, the input channels are that "
        "many times those of the kernel, and the groups divide the output channels.",
    ),
    "D0314": Page(
        "no random key",
        "Random operations take a key, a u32[2], made from a seed, a u64, or from another key and a whole "
        "number.",
    ),
}
