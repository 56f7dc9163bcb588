"""Error pages: model text and IR text (D01)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    # Model text: `.dlm` files.
    "D0100": Page(
        "a model text cannot be read",
        "The file does not exist, is a folder, or you may not read it.",
        "dlc run mpl.dlm",
        "dlc run mlp.dlm",
    ),
    "D0101": Page(
        "a character or operator that the language does not have",
        "The character or operator has no meaning in model text; many come from other languages, or from "
        "a page that prints prettier ones. Where it is clear what was meant, reading went on as if that "
        "were written, so that one slip is one error. In strings and comments any character may occur.",
        "dlc 1\nfn f(a, b) = a && !b;",
        "dlc 1\nfn f(a, b) = a and not b",
    ),
    "D0102": Page(
        "not text in UTF-8, or characters that cannot be seen",
        "Model text is UTF-8. Null bytes and other control characters, carriage returns without a line "
        "feed, and the marks that reorder a line on the screen are refused: what is read must be what is "
        "seen. In a string, write such a character as `\\u{200b}`.",
        "dlc 1\nexport fn f(x: f32) -> f32 = x \u202e+ 1",
        "dlc 1\nexport fn f(x: f32) -> f32 = x + 1",
    ),
    "D0103": Page(
        "not a number",
        "Numbers are written 28, 1_000_000, 0x1f, 0.5, 1e-5. There is a digit on both sides of the point; "
        "integers fit into 64 bits and floats into f64. Sizes in bytes such as 512MiB belong to `limit`.",
        "dlc 1\nfn f(x) = 3x + .5",
        "dlc 1\nfn f(x) = 3 * x + 0.5",
    ),
    "D0104": Page(
        "a string that is not closed, or an unknown escape",
        'A string ends with a quote in the same line. Its escapes are \\n \\t \\r \\0 \\" \\\\ '
        "and \\u{3b1}, any character by its number.",
        'dlc 1\nlet a = npz("data\\digits.npz")',
        'dlc 1\nlet a = npz("data/digits.npz")',
    ),
    "D0106": Page(
        "a model text that is too large",
        "A model text is at most 8 MiB long and 1,000,000 words and signs, a list has at most 65,536 "
        "items, a string 65,536 characters, a number 1,000. Large tables of numbers belong "
        "in a weight file.",
        "const table = [0.12, 0.53, ...]",
        'const table = npz("tables.npz", "table")',
    ),
    "D0107": Page(
        "nested too deep",
        "Blocks and expressions nest at most 64 levels deep. Chains of operators and of `|>` may be of any "
        "length. Name the inner parts with `let`, or make functions of them.",
        'opening, closing = "(" * 100, ")" * 100\n'
        'dlc.compile(text=f"dlc 1\\nexport fn f(x: f32) -> f32 = {opening}x + 1{closing}")',
        'dlc.compile(text="dlc 1\\nexport fn f(x: f32) -> f32 = (x + 1)")',
    ),
    "D0108": Page(
        "no edition",
        "A model text begins with the edition of the language that it is written in, so that a later "
        "version of dlc never misreads it. Only comments may come before it.",
        "fn f(x) = 2 * x",
        "dlc 1\nfn f(x) = 2 * x",
    ),
    "D0109": Page(
        "an unknown edition",
        "The text says that it is written in an edition of the language that this version of dlc does not "
        "know. The rest of it was not read.",
        "dlc 7\nfn f(x) = 2 * x",
        "dlc 1\nfn f(x) = 2 * x",
    ),
    "D0110": Page(
        "something else was expected",
        "The text cannot go on like this at the place of the error. The message says what could follow. "
        "After it the text is read on from the next keyword that begins a statement.",
        "dlc 1\nfn f(x) = if x > 0 { x } else { 0 }",
        "dlc 1\nfn f(x) = if x > 0 then x else 0",
    ),
    "D0111": Page(
        "a bracket that is not closed",
        "The place is where the text can no longer be part of the brackets; the message also shows where "
        "they were opened. A keyword no deeper indented than the line of a `{` tells that its `}` is "
        "missing; otherwise line breaks and indentation mean nothing.",
        "dlc 1\nfn f(x) = sum(mean(x, axis=1)",
        "dlc 1\nfn f(x) = sum(mean(x, axis=1))",
    ),
    "D0112": Page(
        "a bracket too many, or of the wrong kind",
        "Each `)`, `]` and `}` closes the last bracket of its kind that is open.",
        "dlc 1\nfn f(x) = (x[0) + 1)",
        "dlc 1\nfn f(x) = (x[0]) + 1",
    ),
    "D0113": Page(
        "no statement begins like this",
        "Every statement begins with a keyword. Values are named with `let`; loops and choices are "
        "expressions, so they follow a `let` or `return`.",
        "dlc 1\nfn f(x) {\n  y = 2 * x\n  return y\n}",
        "dlc 1\nfn f(x) {\n  let y = 2 * x\n  return y\n}",
    ),
    "D0114": Page(
        "a keyword in the wrong place",
        "At file level there may be import, dim, module, fn, const, let, train, names and limit; in a "
        "module param, state, const, use, fn, require and names; in a block let, return, next, yield, "
        "set, require and debug.",
        "dlc 1\nparam w: f32[4] = ones()",
        "dlc 1\nmodule M {\n  param w: f32[4] = ones()\n}",
    ),
    "D0115": Page(
        "comparisons that chain",
        "`a < b < c` means different things in different languages, so it is not part of this one.",
        "dlc 1\nfn inside(a, x, b) = a <= x < b",
        "dlc 1\nfn inside(a, x, b) = a <= x and x < b",
    ),
    "D0116": Page(
        "a value without a name after one with a name",
        "In a call, arguments without a name come before those with one.",
        "dlc 1\nlet c = reshape(shape=[2, 1], [1, 2])",
        "dlc 1\nlet c = reshape([1, 2], shape=[2, 1])",
    ),
    "D0117": Page(
        "documentation without a declaration",
        "A comment that begins with `##` documents the item, member, parameter or entry that follows it, "
        "and so is on lines of its own before it. Everywhere else a comment begins with one `#`.",
        "dlc 1\nfn f(x) = 2 * x  ## doubles x",
        "dlc 1\n## Twice x.\nfn f(x) = 2 * x",
    ),
    "D0118": Page(
        "a keyword as a name",
        "Most keywords may be names too, but these may not: if, then, else, scan, while, for, in, and, or, "
        "not, true, false, let, return, fn.",
        "dlc 1\nfn f(in, out) = in + out",
        "dlc 1\nfn f(input, output) = input + output",
    ),
    "D0119": Page(
        "too many errors",
        "After 50 errors the rest of a text is not read: a longer list would not help.",
        'dlc.compile(text="dlc 1\\n" + "fn f(x) = ]\\n" * 60)',
        'dlc.compile(text="dlc 1\\nexport fn f(x: f32) -> f32 = x")',
    ),
    # IR text: `.dlir` files.
    "D0150": Page(
        "IR text that is too large",
        "An IR text, a line in it, its constants together, or the nesting of its regions, lists and types "
        "go beyond what is read. Keep numbers in a weight file; write no deeper than the model is.",
        'lists = "[" * 1000 + "]" * 1000\n'
        'Path("deep.dlir").write_text(f\'"a"() <{{k = {lists}}}> : () -> ()\')\n'
        'dlc.compile("deep.dlir")',
        'dlc.compile("exp.dlm")',
    ),
    "D0151": Page(
        "not the form of an operation",
        "IR text is made of operations in MLIR's generic form: results, the name in quotes, operands, "
        "attributes, regions, types. At this place there is something else.",
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
        "func @f (%x: f32[4]) {\n  %y = array.negate %z\n  return %y\n}",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n  return %y\n}",
    ),
    "D0154": Page(
        "value defined twice",
        "Within a function each value has a name of its own, also in different regions inside each other.",
        "func @f (%x: f32[4]) {\n  %x = array.negate %x\n  return %x\n}",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n  return %y\n}",
    ),
    "D0155": Page(
        "written types that do not agree",
        "IR text says the type of each operand and result again. They must be the types that the operands "
        "have where they are defined, and those that the operation gives.",
        '"func.func"() <{sym_name = "f", function_type = (tensor<4xf32>) -> tensor<4xf32>}> ({\n'
        "^bb0(%x: tensor<4xf32>):\n"
        '  %y = "array.negate"(%x) : (tensor<8xf32>) -> tensor<4xf32>\n'
        '  "func.return"(%y) : (tensor<4xf32>) -> ()\n'
        "}) : () -> ()",
        '"func.func"() <{sym_name = "f", function_type = (tensor<4xf32>) -> tensor<4xf32>}> ({\n'
        "^bb0(%x: tensor<4xf32>):\n"
        '  %y = "array.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '  "func.return"(%y) : (tensor<4xf32>) -> ()\n'
        "}) : () -> ()",
    ),
    "D0156": Page(
        "not a type",
        "This is not the spelling of a type, or of a size. Sizes that are not numbers are named in an "
        "attribute of the tensor type.",
        '"func.func"() <{sym_name = "f", function_type = (tensor<?x2xf32>) -> tensor<2x?xf32>}> ({\n'
        "^bb0(%x: tensor<?x2xf32>):\n"
        '  %y = "array.transpose"(%x) <{axes = array<i64: 1, 0>}> : (tensor<?x2xf32>) -> tensor<2x?xf32>\n'
        '  "func.return"(%y) : (tensor<2x?xf32>) -> ()\n'
        "}) : () -> ()",
        '"func.func"() <{sym_name = "f", function_type = (tensor<4x2xf32>) -> tensor<2x4xf32>}> ({\n'
        "^bb0(%x: tensor<4x2xf32>):\n"
        '  %y = "array.transpose"(%x) <{axes = array<i64: 1, 0>}> : (tensor<4x2xf32>) -> tensor<2x4xf32>\n'
        '  "func.return"(%y) : (tensor<2x4xf32>) -> ()\n'
        "}) : () -> ()",
    ),
    "D0157": Page(
        "not an attribute value",
        "Attributes are true and false, integers of 64 bits, f64 numbers, strings, @symbols, types, sizes, "
        "constants (dense<...>), integers in array<i64: ...>, and lists of these.",
        '"func.func"() <{sym_name = "f", function_type = (tensor<4x2xf32>) -> tensor<2x4xf32>}> ({\n'
        "^bb0(%x: tensor<4x2xf32>):\n"
        '  %y = "array.transpose"(%x) <{axes = array<i32: 1, 0>}> : (tensor<4x2xf32>) -> tensor<2x4xf32>\n'
        '  "func.return"(%y) : (tensor<2x4xf32>) -> ()\n'
        "}) : () -> ()",
        '"func.func"() <{sym_name = "f", function_type = (tensor<4x2xf32>) -> tensor<2x4xf32>}> ({\n'
        "^bb0(%x: tensor<4x2xf32>):\n"
        '  %y = "array.transpose"(%x) <{axes = array<i64: 1, 0>}> : (tensor<4x2xf32>) -> tensor<2x4xf32>\n'
        '  "func.return"(%y) : (tensor<2x4xf32>) -> ()\n'
        "}) : () -> ()",
    ),
    "D0158": Page(
        "parts that the operation does not declare",
        "An operation has the operands, regions and attributes that its class declares. Attributes with "
        "another purpose have a name with a dot in it, such as `dlc.doc`. `dlc doc NAME` shows the parts.",
        "func @f (%x: f32[4]) {\n  %y = array.negate {axis=0} %x\n  return %y\n}",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n  return %y\n}",
    ),
    "D0159": Page(
        "parts that do not make an operation",
        "The operation cannot be computed from these operands, attributes and regions, or has another "
        "number of results than are named.",
        "func @f (%x: f32[4]) {\n  %y, %z = array.negate %x\n  return %y\n}",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n  return %y\n}",
    ),
    "D0160": Page(
        "a region without its end",
        "The last operation of a region, and no other, hands its results over: `func.return`, "
        "`kernel.yield` and others. Only a module has none.",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n}",
        "func @f (%x: f32[4]) {\n  %y = array.negate %x\n  return %y\n}",
    ),
    "D0162": Page(
        "a symbol that is missing or defined twice",
        "Functions and weights of a module have names of their own, and `@name` refers to one of them. "
        "They are in the module itself, not inside of other operations.",
        "func @f (%x: f32[4]) {\n  return %x\n}\nfunc @f (%x: f32[4]) {\n  return %x\n}",
        "func @f (%x: f32[4]) {\n  return %x\n}\nfunc @g (%x: f32[4]) {\n  return %x\n}",
    ),
    "D0163": Page(
        "operations that are not linked as they must be",
        "The operations in memory disagree about their places, uses or owners. This comes from a pass, "
        "not from a model: please report it.",
        without="only a bug in dlc causes it, and none is known",
    ),
    "D0161": Page(
        "a different operation than asked for",
        "The text is one operation; here it must be a module (`builtin.module`), or another kind that the "
        "message names.",
        '"array.fill"() <{value = 2.0 : f64, type = tensor<f32>}> : () -> tensor<f32>',
        '"builtin.module"() ({\n}) : () -> ()',
    ),
    "D0164": Page(
        "a plan or loops that no loader takes",
        "IR at plan or loop level says itself where values lie and what is done when. What is made of it "
        "is checked as every artifact is when it is loaded: memory that overlaps, views outside of what "
        "they are views of, kernels and sizes that do not exist are refused. Evaluated, IR below the graph "
        "fails where it reaches memory or values that are not there.",
        "dlc compile overlap.dlir --trust-ir",
        "dlc compile plan.dlir --trust-ir",
    ),
    "D0165": Page(
        "a file without the kernel that it should have, or with one that LLVM refuses",
        "`--kernel NAME=FILE` puts a kernel of yours in place of the one that dlc makes. The file has a "
        "function of that name: in `.ll` a `define void @NAME(...)`, in `.dlir` a `loop.func`. Print the "
        "kernel that dlc makes, change it, and name that file.",
        "dlc compile mlp.dlm --kernel gemm_0=other.ll",
        "dlc show mlp.dlm --stage llvm > own.ll\ndlc compile mlp.dlm --kernel gemm_0=own.ll",
    ),
}
