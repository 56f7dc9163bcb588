"""Error pages: types and shapes (D03)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0301": Page(
        "types that do not fit together",
        "An operation takes tensors whose dtypes and sizes agree, and these do not. Two different named "
        "sizes never agree, and nothing is converted silently. The message names both types: convert, "
        "transpose or broadcast one of them.",
        "dlc 1\nexport fn f(x: f32[3, 784], w: f32[10, 784]) -> f32[3, 10] = x @ w",
        "dlc 1\nexport fn f(x: f32[3, 784], w: f32[10, 784]) -> f32[3, 10] = x @ transpose(w)",
    ),
    "D0302": Page(
        "an operation that this dtype does not have",
        "The operation is defined for other kinds of elements: a sine of integers, a shift of floats or "
        "a sum of bools is none. Convert first.",
        "dlc 1\nexport fn f(x: f32[4]) -> i32 = sum(x > 0)",
        "dlc 1\nexport fn f(x: f32[4]) -> i32 = sum(i32(x > 0))",
    ),
    "D0303": Page(
        "a reshape to another number of elements",
        "A reshape keeps all elements in row-major order, so both shapes have the same size. With named "
        "sizes they must be equal for every value of them.",
        "dlc 1\ndim B = 1..8\nexport fn f(x: f32[B, 28, 28]) -> f32[B, 100] = reshape(x, [B, 100])",
        "dlc 1\ndim B = 1..8\nexport fn f(x: f32[B, 28, 28]) -> f32[B, 784] = reshape(x, [B, 784])",
    ),
    "D0304": Page(
        "a broadcast that does not fit",
        "A tensor is repeated along missing axes and along axes whose size is the literal 1, aligned at "
        "the right. Any other axis keeps its size; a named size is never taken for 1.",
        "dlc 1\ndim B = 1..8\nexport fn f(b: f32[B]) -> f32[B, 10] = broadcast(b, [B, 10])",
        "dlc 1\ndim B = 1..8\nexport fn f(b: f32[B]) -> f32[B, 10] = broadcast(b[:, new], [B, 10])",
    ),
    "D0305": Page(
        "no such axis",
        "Axes are counted from 0, or from -1 backwards, and an operation names each one at most once.",
        "dlc 1\nexport fn f(x: f32[3, 10]) -> f32[3] = sum(x, axis=2)",
        "dlc 1\nexport fn f(x: f32[3, 10]) -> f32[3] = sum(x, axis=1)",
    ),
    "D0306": Page(
        "a part that is not inside its tensor",
        "A slice, pad or selection with sizes known when compiling goes past the end of the axis, or "
        "counts below 0.",
        "dlc 1\nexport fn f(x: f32[10]) -> f32[5] = split(x, 3)[0]",
        "dlc 1\nexport fn f(x: f32[10]) -> f32[5] = split(x, 2)[0]",
    ),
    "D0307": Page(
        "tensors that cannot be concatenated",
        "Tensors are put one after the other along one axis; their dtypes, their numbers of axes and all "
        "other sizes are equal.",
        "dlc 1\nexport fn f(x: f32[2, 3], y: f32[2, 4]) -> f32[4, 3] = concat([x, y], axis=0)",
        "dlc 1\nexport fn f(x: f32[2, 3], y: f32[2, 4]) -> f32[2, 7] = concat([x, y], axis=1)",
    ),
    "D0308": Page(
        "indices that do not fit",
        "Index tensors are integers, all of one dtype and shape, one for each indexed axis; updates have "
        "the type of the indexed places; a mask is one bool for each place along its axis. "
        "Places that an operation gives are i32, so the axis that it counts has at most 2147483647.",
        "dlc 1\nexport fn f(x: f32[5], at: f32[2]) -> f32[2] = take_along(x, at, axis=0)",
        "dlc 1\nexport fn f(x: f32[5], at: i32[2]) -> f32[2] = take_along(x, at, axis=0)",
    ),
    "D0309": Page(
        "a starting index that is not a number",
        "A part whose place is computed begins at one i64 for each axis.",
        'func @f {dlc.inputs=["x", "k"]} (%x: f32[4], %k: i32[]) {\n'
        "  %y = array.dynamic_slice %x, %k {sizes=[2]}\n"
        "  return %y\n"
        "}",
        'func @f {dlc.inputs=["x", "k"]} (%x: f32[4], %k: i64[]) {\n'
        "  %y = array.dynamic_slice %x, %k {sizes=[2]}\n"
        "  return %y\n"
        "}",
    ),
    "D0310": Page(
        "nothing to choose from",
        "The largest or smallest element of an axis of size 0 has no index. `max` and `min` of nothing "
        "are the lowest and highest value of the dtype.",
        "dlc 1\nexport fn f(x: f32[0]) -> i32 = argmax(x)",
        "dlc 1\nexport fn f(x: f32[1]) -> i32 = argmax(x)",
    ),
    "D0311": Page(
        "an einsum that cannot be read",
        "One group of labels for each tensor, a letter for each axis (`..` for any leading axes), then an "
        "arrow and the labels of the result, each of them once. A label has one size.",
        'dlc 1\nexport fn f(a: f32[2, 3], b: f32[3, 4]) -> f32[2, 4] = einsum("ij,jk->iz", a, b)',
        'dlc 1\nexport fn f(a: f32[2, 3], b: f32[3, 4]) -> f32[2, 4] = einsum("ij,jk->ik", a, b)',
    ),
    "D0312": Page(
        "a window that does not fit",
        "The kernel of a convolution or pool reaches further than its input with the padding, has a step "
        "below 1, or its padding is not less than itself.",
        "dlc 1\nexport fn f(x: f32[2, 4, 4, 3]) -> f32[2, 1, 1, 3] = max_pool2d(x, 5)",
        "dlc 1\nexport fn f(x: f32[2, 4, 4, 3]) -> f32[2, 1, 1, 3] = max_pool2d(x, 4)",
    ),
    "D0313": Page(
        "channels that do not fit",
        "A convolution takes as many channels as its input has; with groups, the input channels are that "
        "many times those of the kernel, and the groups divide the output channels.",
        "dlc 1\nexport fn f(x: f32[2, 8, 8, 3], w: f32[3, 3, 4, 5]) -> f32[2, 6, 6, 5] = conv(x, w)",
        "dlc 1\nexport fn f(x: f32[2, 8, 8, 3], w: f32[3, 3, 3, 5]) -> f32[2, 6, 6, 5] = conv(x, w)",
    ),
    "D0314": Page(
        "no random key",
        "Random operations take a key, a u32[2], made from a seed, a u64, or from another key and a whole "
        "number.",
        'func @f {dlc.inputs=["key"]} (%key: f32[2]) {\n'
        "  %y = rng.uniform %key {shape=[4]}\n"
        "  return %y\n"
        "}",
        'func @f {dlc.inputs=["key"]} (%key: u32[2]) {\n'
        "  %y = rng.uniform %key {shape=[4]}\n"
        "  return %y\n"
        "}",
    ),
    # Types in model text.
    "D0320": Page(
        "an argument of another kind or type",
        "What is given is not what the parameter takes: another dtype, another shape, or a number where a "
        "tensor, a list or a function belongs. The message names both; nothing is converted silently.",
        "dlc 1\nfn g(x: f32[3]) = 2 * x\nexport fn f(x: i32[3]) -> f32[3] = g(x)",
        "dlc 1\nfn g(x: f32[3]) = 2 * x\nexport fn f(x: i32[3]) -> f32[3] = g(f32(x))",
    ),
    "D0321": Page(
        "a result or a value of another type than declared",
        "A result type, or the type behind `let NAME:`, is a promise, and the value found has another "
        "dtype or shape. Correct the one or the other.",
        "dlc 1\nexport fn f(x: f32[3, 4]) -> f32[3] = sum(x, axis=0)",
        "dlc 1\nexport fn f(x: f32[3, 4]) -> f32[3] = sum(x, axis=1)",
    ),
    "D0322": Page(
        "tensors of different dtypes do not mix",
        "Numbers written in the text adapt to the tensor beside them, tensors never do, because a "
        "conversion costs time and may lose digits. Convert one of them, for example with `f32(...)`.",
        "dlc 1\nexport fn f(x: f32[3], n: i32[3]) -> f32[3] = x * n",
        "dlc 1\nexport fn f(x: f32[3], n: i32[3]) -> f32[3] = x * f32(n)",
    ),
    "D0323": Page(
        "a number that the dtype cannot hold",
        "A number written in the text takes the dtype of the tensor beside it, and that dtype has no such "
        "value: a fraction among integers, a number that is too large, or `true` among numbers. Convert "
        "the tensor first. Sizes and the numbers of a range are i32 where nothing else is said.",
        "dlc 1\nexport fn f(x: i32[3]) -> f32[3] = x * 0.5",
        "dlc 1\nexport fn f(x: i32[3]) -> f32[3] = f32(x) * 0.5",
    ),
    "D0325": Page(
        "a division of integers with `/`",
        "`/` divides floats. For integers, `//` rounds down and `%` gives what is left over; for the exact "
        "quotient, convert to floats first.",
        "dlc 1\nexport fn f(x: i32[3]) -> i32[3] = x / 2",
        "dlc 1\nexport fn f(x: i32[3]) -> i32[3] = x // 2",
    ),
    "D0326": Page(
        "a value of the wrong kind",
        "An operator, an index or a name was given something that has no meaning there: a function that "
        "was not called, or a tuple in place of a tensor.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = relu + x",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = relu(x) + x",
    ),
    "D0327": Page(
        "a value that is known only when the model runs",
        "Sizes, parameters of modules, constants and the ends of slices are decided when the model is "
        "compiled. Here is a tensor, or something else that is not such a number. Sizes are divided "
        "with `//`, because `/` makes a float of them.",
        "dlc 1\nexport fn f(x: f32[9], n: i32) -> f32[3] = x[n:n + 3]",
        "dlc 1\nexport fn f(x: f32[9], n: i32) -> f32[3] = x[n + arange(3)]",
    ),
    "D0328": Page(
        "a decision that depends on a size or tensor",
        "Lists made with `for` are worked out when the model is compiled, and so is `require` of all but "
        "sizes, which calls are checked for; this one depends on what comes at a call. Bound a size where "
        "it is declared, `dim B = 1..64`; loop with `scan`.",
        "dlc 1\ndim B = 1..64\nexport fn f(x: f32[B]) -> f32 = sum([for i in 0..B: x[i]])",
        "dlc 1\ndim B = 1..64\n"
        "export fn f(x: f32[B]) -> f32 = scan e in x with s = 0.0 { next s = s + e }",
    ),
    "D0329": Page(
        "a number out of range",
        "An index or slice leaves its axis or list, a step is 0, a size is negative, beyond "
        "2**62 or too long to be written, or a calculation of sizes divides by 0. Nothing is clamped: an "
        "axis of size n has the places 0 to n - 1, and -1 is the last of them.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = x[3]",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = x[2]",
    ),
    "D0330": Page(
        "parts whose number does not fit",
        "A pattern such as `(a, b)` takes a tuple of as many parts, or a tensor whose first size is that "
        "number; `..` skips the others. In a list of lists, all rows have one length.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 {\n  let (a, b) = x\n  return a + b\n}",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 {\n  let (a, b, ..) = x\n  return a + b\n}",
    ),
    "D0331": Page(
        "a size that cannot be found out",
        "A size that a function names is read off its arguments, where it is alone or in a sum or "
        "product that can be solved. Here no argument tells it.",
        "dlc 1\nfn g(x: f32[N * M]) = x\nexport fn f(x: f32[6]) -> f32[6] = g(x)",
        "dlc 1\nfn g(x: f32[2 * M]) = x\nexport fn f(x: f32[6]) -> f32[6] = g(x)",
    ),
    "D0332": Page(
        "a size that is left open where it must be stated",
        "The inputs of an entry point and the weights of a module have all their sizes written out, "
        "without `_` and `..`. A size that changes from call to call is declared: `dim B = 1..1024`.",
        "dlc 1\nexport fn f(x: f32[_]) -> f32 = sum(x)",
        "dlc 1\ndim B = 1..1024\nexport fn f(x: f32[B]) -> f32 = sum(x)",
    ),
    "D0333": Page(
        "a block that returns nothing",
        "The value of a block in braces is what its `return` gives.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] {\n  let y = 2 * x\n}",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] {\n  let y = 2 * x\n  return y\n}",
    ),
    "D0334": Page(
        "an entry point whose types are not declared",
        "An `export fn` is what programs in other languages call, so the types of its parameters and of "
        "its result are written out: tensors, or one tuple of tensors as the result.",
        "dlc 1\nexport fn f(x: f32[3]) = 2 * x",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = 2 * x",
    ),
    "D0335": Page(
        "bounds that no size fulfils",
        "The bounds of a `dim` are written with the smaller one first. Neither is negative, nor beyond "
        "2**62.",
        "dlc 1\ndim B = 64..1\nexport fn f(x: f32[B]) -> f32 = sum(x)",
        "dlc 1\ndim B = 1..64\nexport fn f(x: f32[B]) -> f32 = sum(x)",
    ),
    "D0337": Page(
        "an index that is not a whole number",
        "An axis is indexed by whole numbers, by slices, or by a tensor of whole numbers. A mask of bools "
        "has no fixed number of places: choose between elements with `where`, or take the places from "
        "`nonzero`.",
        "dlc 1\nexport fn f(x: f32[3], i: f32[2]) -> f32[2] = x[i]",
        "dlc 1\nexport fn f(x: f32[3], i: f32[2]) -> f32[2] = x[i32(i)]",
    ),
    "D0336": Page(
        "a pattern of `rearrange` that does not fit",
        "Left of the arrow every axis of the tensor has a name, or a group of names in parentheses whose "
        "sizes multiply to its own; right of it the same names come in their new order. At most one size "
        "of a group is left out.",
        'dlc 1\nexport fn f(x: f32[2, 3]) -> f32[3, 2] = rearrange(x, "a b -> b")',
        'dlc 1\nexport fn f(x: f32[2, 3]) -> f32[3, 2] = rearrange(x, "a b -> b a")',
    ),
    "D0338": Page(
        "more axes than values have",
        "A tensor has at most 16 axes, be it an input, a result, a weight or a value in between.",
        f"dlc 1\nexport fn f(x: f32) -> f32 = sum(zeros([{', '.join(['1'] * 17)}]) + x)",
        f"dlc 1\nexport fn f(x: f32) -> f32 = sum(zeros([{', '.join(['1'] * 16)}]) + x)",
    ),
    "D0380": Page(
        "a collective without ranks",
        "An operation such as `comm.all_reduce` joins the processes of a mesh, and this program runs "
        "alone: an evaluation, or code whose ranks nobody has started.",
        "dlc run step.dlir",
        "mpiexec -n 4 python train.py  # dlc.load(path, comm=MPI.COMM_WORLD)",
    ),
    "D0381": Page(
        "an axis without equal parts",
        "Each rank of a mesh has the same part of an axis that is split, so its size must be a multiple of "
        "the number of ranks. A named size is always divided; one in numbers must have a divisor.",
        "dlc train mlp.dlm --ranks 3  # loss(x: f32[32, 8])",
        "dlc train mlp.dlm --ranks 4",
    ),
    "D0382": Page(
        "a weight that cannot be split this way",
        "`split` says for each axis of a weight which axis of the mesh splits it, or `none`. The text has "
        "a mesh with these axes, each splits one axis of the weight, and its number of ranks divides the "
        "size; `stage` splits none, as a weight is on one stage.",
        "dlc 1\nmesh model = 2\nmodule M() {\n  param w: f32[4, 3] split (none, model)\n"
        "  export fn f(x: f32[4]) -> f32[3] = x @ w\n}",
        "dlc 1\nmesh model = 2\nmodule M() {\n  param w: f32[4, 6] split (none, model)\n"
        "  export fn f(x: f32[4]) -> f32[6] = x @ w\n}",
    ),
    "D0383": Page(
        "an impossible stage",
        "`on stage 0 { ... }` puts a part of the model on a stage of a pipeline of ranks. The text has a "
        "mesh with an axis `stage`, whose size is the number of stages; each of them, from 0 on, has a "
        "part. Values go from a stage to later ones only, a loop or a choice is on one stage as a whole, "
        "and the scale of the loss is a number.",
        "dlc 1\nmesh stage = 2\nexport fn f(x: f32[4]) -> f32[4] {\n"
        "  let h = on stage 1 { 2 * x }\n  return on stage 2 { h + 1 }\n}",
        "dlc 1\nmesh stage = 2\nexport fn f(x: f32[4]) -> f32[4] {\n"
        "  let h = on stage 0 { 2 * x }\n  return on stage 1 { h + 1 }\n}",
    ),
}
