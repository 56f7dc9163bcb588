"""Error pages: see `dlc.errors.catalog`."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    # IR text: `.dlir` files.
    "D0150": Page(
        "IR text that is too much",
        "An IR text, a line in it, its constants together, or the nesting of its regions, lists and types "
        "go beyond what is read. Keep numbers in a weight file; write no deeper than the model is.",
    ),
    "D0151": Page(
        "not the form of an operation",
        "IR text is made of operations in MLIR's generic form: results, the name in quotes, operands, "
        "attributes, regions, types. Something else stands at this place.",
        "%y = array.negate(%x) : tensor<4xf32>",
        '%y = "array.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>',
    ),
    "D0152": Page(
        "unknown operation",
        "No dialect has an operation of this name. `dlc ops` lists them.",
        '%y = "array.negte"(%x) : (tensor<4xf32>) -> tensor<4xf32>',
        '%y = "array.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>',
    ),
    "D0153": Page(
        "value not defined",
        "An operand must be the result of an earlier operation of the same region or of one around it, or "
        "an argument of such a region. Functions use no values from outside.",
    ),
    "D0154": Page(
        "value defined twice",
        "Within a function each value has a name of its own, also in different regions inside each other.",
    ),
    "D0155": Page(
        "written types that do not agree",
        "IR text says the type of each operand and result again. They must be the types that the operands "
        "have where they are defined, and those that the operation gives.",
    ),
    "D0156": Page(
        "no type",
        "This is not the spelling of a type, or of a size. Sizes that are not numbers are named in an "
        "attribute of the tensor type.",
        "tensor<?x64xf32>",
        'tensor<?x64xf32, #dlc.dims<"B, 64">>',
    ),
    "D0157": Page(
        "no value of an attribute",
        "Attributes are true and false, integers of 64 bits, f64 numbers, strings, @symbols, types, sizes, "
        "constants (dense<...>), integers in array<i64: ...>, and lists of these.",
        "axes = array<i32: 1, 0>",
        "axes = array<i64: 1, 0>",
    ),
    "D0158": Page(
        "parts that the operation does not declare",
        "An operation has the operands, regions and attributes that its class declares. Attributes with "
        "another purpose have a name with a dot in it, such as `dlc.doc`. `dlc doc NAME` shows the parts.",
    ),
    "D0159": Page(
        "parts that do not make an operation",
        "The operation cannot be computed from these operands, attributes and regions, or has another "
        "number of results than are named.",
    ),
    "D0160": Page(
        "a region without its end",
        "The last operation of a region, and no other, hands its results over: `func.return`, "
        "`kernel.yield` and others. Only a module has none.",
    ),
    "D0161": Page(
        "another operation than asked for",
        "The text is one operation; here it must be a module (`builtin.module`), or another kind that the "
        "message names.",
    ),
}
