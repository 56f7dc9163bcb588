"""Error pages: names and modules (D02)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    # Names.
    "D0201": Page(
        "an unknown name",
        "A name stands for something that is declared in the file, in the module or function around it, "
        "imported, or built in. `let` names a value for the rest of its block only. If a known name is "
        "spelt almost like this one, the message suggests it.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = rellu(x)",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = relu(x)",
    ),
    "D0202": Page(
        "a name that is declared twice",
        "What a file declares or imports has one name each, and so has what a loop carries. Only `let` "
        "may take a name again, inside a function. Rename one of the two.",
        "dlc 1\nfn half(x) = x / 2\nfn half(x) = x * 0.5\n"
        "export fn f(x: f32[3]) -> f32[3] = half(x)",
        "dlc 1\nfn half(x) = x / 2\nexport fn f(x: f32[3]) -> f32[3] = half(x)",
    ),
    "D0206": Page(
        "an unknown member or attribute",
        "A dot is followed by a member of an instance of a module, a named result of a function, a name of "
        "an imported file, or the number of a layer in a chain. Tensors have no members: `x.shape` is "
        "written `shape(x)`.",
        "dlc 1\n"
        "fn both(x) -> (low: f32, high: f32) = (low = min(x), high = max(x))\n"
        "export fn f(x: f32[3]) -> f32 = both(x).top",
        "dlc 1\n"
        "fn both(x) -> (low: f32, high: f32) = (low = min(x), high = max(x))\n"
        "export fn f(x: f32[3]) -> f32 = both(x).high",
    ),
    # Imports.
    "D0203": Page(
        "an import that cannot be found",
        "The library has no such file, the file declares no such name, or there is no folder to look in, "
        "because the text was not read from a file. A library is imported by its name, a file of one's "
        "own in quotes; one model reads a limited number of files.",
        "dlc 1\nimport nn (Lineer)\nexport fn f(x: f32[3]) -> f32[3] = x",
        "dlc 1\nimport nn (Linear)\nexport fn f(x: f32[3]) -> f32[3] = x",
    ),
    "D0204": Page(
        "circular imports",
        "Two files that import each other cannot both be read first. Move what both of them need into a "
        "third file and import that.",
        'Path("a.dlm").write_text(\'dlc 1\\nimport "b.dlm" (g)\\nfn f(x) = g(x)\\n\')\n'
        'Path("b.dlm").write_text(\'dlc 1\\nimport "a.dlm" (f)\\nfn g(x) = x + 1\\n\')\n'
        'dlc.compile("a.dlm")',
        'Path("a.dlm").write_text(\'dlc 1\\nimport "b.dlm" (g)\\nexport fn f(x: f32) -> f32 = g(x)\\n\')\n'
        'Path("b.dlm").write_text("dlc 1\\nfn g(x) = x + 1\\n")\n'
        'dlc.compile("a.dlm")',
    ),
    "D0205": Page(
        "an import from outside of the folder",
        "A model reads files beside it and below it, never above it, and no link changes that: so a "
        "folder that you were given can be read without reading anything else of yours.",
        'dlc 1\nimport "../common.dlm" (norm)\nexport fn f(x: f32) -> f32 = norm(x)',
        'dlc 1\nimport "common.dlm" (norm)\nexport fn f(x: f32) -> f32 = norm(x)',
    ),
    # Modules.
    "D0207": Page(
        "two modules with entry points",
        "A model has one root module: the one with `export fn`. Where a file has several, the command "
        "line says which of them is meant.",
        "dlc 1\n"
        "module Encoder { export fn encode(x: f32[4]) -> f32[4] = exp(x) }\n"
        "module Decoder { export fn decode(x: f32[4]) -> f32[4] = log(x) }",
        "dlc 1\n"
        "module Encoder { export fn encode(x: f32[4]) -> f32[4] = exp(x) }\n"
        "module Decoder { fn decode(x: f32[4]) = log(x) }",
    ),
    "D0208": Page(
        "a call whose arguments do not fit the parameters",
        "An argument is missing, given twice, given to a parameter that does not exist, or there are more "
        "of them than parameters. The message shows the function with its parameters; those with a "
        "default may be left out.",
        "dlc 1\nfn scale(x, by) = x * by\nexport fn f(x: f32[3]) -> f32[3] = scale(x)",
        "dlc 1\nfn scale(x, by) = x * by\nexport fn f(x: f32[3]) -> f32[3] = scale(x, 2)",
    ),
    "D0209": Page(
        "something that cannot be called",
        "Functions can be called, modules that have a `fn call`, chains, and dtypes. A product always "
        "has its sign: `2 * (x + 1)`, not `2(x + 1)`.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = 2(x + 1)",
        "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = 2 * (x + 1)",
    ),
    "D0211": Page(
        "a requirement that does not hold",
        "A `require` of a module says what its parameters must fulfil, and these do not. The message is "
        "the one that the author of the module wrote; change the parameters that it speaks of.",
        "dlc 1\n"
        "module Heads(D, H) {\n"
        '  require D % H == 0, "the heads must divide the width"\n'
        "  fn call(x: f32[D]) = reshape(x, [H, D // H])\n"
        "}\n"
        "module Net() {\n"
        "  use heads = Heads(64, 6)\n"
        "  export fn f(x: f32[64]) -> f32[6, 10] = heads(x)\n"
        "}",
        "dlc 1\n"
        "module Heads(D, H) {\n"
        '  require D % H == 0, "the heads must divide the width"\n'
        "  fn call(x: f32[D]) = reshape(x, [H, D // H])\n"
        "}\n"
        "module Net() {\n"
        "  use heads = Heads(64, 8)\n"
        "  export fn f(x: f32[64]) -> f32[8, 8] = heads(x)\n"
        "}",
    ),
    "D0213": Page(
        "a size left open that is needed at once",
        "`_` in place of a size of a layer is found out when the layer is called for the first time, and "
        "here it is needed earlier, or what was put in has a size that changes from call to call. "
        "Write the number.",
        "dlc 1\n"
        "module Dense(I, O) {\n"
        "  param w: f32[I, O] = glorot_uniform()\n"
        "  fn call(x: f32[.., I]) = x @ w\n"
        "}\n"
        "module Net() {\n"
        "  use head = Dense(_, 10)\n"
        "  export fn f(x: f32[5]) -> f32[_, 10] = head.w\n"
        "}",
        "dlc 1\n"
        "module Dense(I, O) {\n"
        "  param w: f32[I, O] = glorot_uniform()\n"
        "  fn call(x: f32[.., I]) = x @ w\n"
        "}\n"
        "module Net() {\n"
        "  use head = Dense(5, 10)\n"
        "  export fn f(x: f32[5]) -> f32[5, 10] = head.w\n"
        "}",
    ),
    "D0214": Page(
        "a name that is defined by itself",
        "To find the value of the name, the same value is needed, perhaps by way of others. One of the "
        "values in the circle must not depend on the others.",
        "dlc 1\nconst a = b + 1\nconst b = a - 1\nexport fn f(x: f32[3]) -> f32[3] = x * a",
        "dlc 1\nconst a = b + 1\nconst b = 2\nexport fn f(x: f32[3]) -> f32[3] = x * a",
    ),
    "D0215": Page(
        "a function that calls itself without end",
        "A call is replaced by what the function does, when the model is compiled, so calls end after a "
        "known number of steps. A function may call itself only under an `if` that is decided when "
        "compiling; loops are written `scan` or `while`.",
        "dlc 1\nfn f(x) = f(x / 2)\nexport fn g(x: f32) -> f32 = f(x)",
        "dlc 1\nfn half(x) = x / 2\nexport fn g(x: f32) -> f32 =\n"
        "  while x > 1 with x = x { next x = half(x) }",
    ),
    "D0216": Page(
        "a model that becomes too large",
        "Lists, functions and modules are written out when the model is compiled, and this one becomes "
        "larger than the limit. A `scan`, and a stack such as `12 * Block(64)`, compile their body once, "
        "however often it runs.",
        "dlc 1\nexport fn f(x: f32) -> f32 = sum([for i in 0..1000000: x])",
        "dlc 1\nexport fn f(x: f32) -> f32 = scan i in 0..1000000 with s = 0.0 { next s = s + x }",
    ),
    "D0218": Page(
        "not a layer",
        "`use`, `chain` and stacks take instances of modules; `use` and `chain` also take functions. A "
        "number is named with `const`, a weight with `param`.",
        "dlc 1\nmodule Net() {\n  use width = 3\n  export fn f(x: f32[3]) -> f32[3] = x * width\n}",
        "dlc 1\nmodule Net() {\n  const width = 3\n"
        "  export fn f(x: f32[3]) -> f32[3] = x * width\n}",
    ),
    "D0219": Page(
        "a module is made inside a function",
        "Weights belong to an instance of a module, and instances are members, so that every weight has a "
        "path of names and is the same at each call. Make the instance with `use`, and call that.",
        "dlc 1\nimport nn (Linear)\nmodule Net() {\n"
        "  export fn f(x: f32[3]) -> f32[2] = Linear(3, 2)(x)\n}",
        "dlc 1\nimport nn (Linear)\nmodule Net() {\n  use head = Linear(3, 2)\n"
        "  export fn f(x: f32[3]) -> f32[2] = head(x)\n}",
    ),
    "D0220": Page(
        "a weight without an initial value",
        "A `param` or `state` starts from an initialiser such as `zeros()`, `normal(0.02)` or "
        "`glorot_uniform()`, or from a file. An initialiser is called without a shape, which is that of "
        "the weight.",
        "dlc 1\nmodule Net() {\n  param w: f32[3] = normall(0.02)\n"
        "  export fn f(x: f32[3]) -> f32[3] = x * w\n}",
        "dlc 1\nmodule Net() {\n  param w: f32[3] = normal(0.02)\n"
        "  export fn f(x: f32[3]) -> f32[3] = x * w\n}",
    ),
    "D0221": Page(
        "a weight whose size changes from call to call",
        "Weights are kept in a file, so their sizes are fixed when the model is compiled. A `dim` changes "
        "from call to call; make the size a parameter of the module instead.",
        "dlc 1\ndim B = 1..64\nmodule Net() {\n  param w: f32[B] = zeros()\n"
        "  export fn f(x: f32[B]) -> f32[B] = x * w\n}",
        "dlc 1\nmodule Net(N = 64) {\n  param w: f32[N] = zeros()\n"
        "  export fn f(x: f32[N]) -> f32[N] = x * w\n}",
    ),
    "D0222": Page(
        "a model without an entry point",
        "An artifact has one entry point for each `export fn`. A file that has none can be imported by "
        "another one and checked, but there is nothing to compile or to run.",
        "dlc 1\nfn double(x: f32[4]) -> f32[4] = 2 * x",
        "dlc 1\nexport fn double(x: f32[4]) -> f32[4] = 2 * x",
    ),
    "D0212": Page(
        "a member that hides a builtin",
        "A weight, a state or a constant may have the name of a builtin function only if nothing in the "
        "module calls that name: the call would find a value that cannot be called. A submodule or a "
        "function of the module may have such a name, and is what is called then.",
        "dlc 1\nmodule M(D) {\n  param sum: f32[D] = zeros()\n  fn call(x: f32[.., D]) = sum(x + sum)\n}",
        "dlc 1\nmodule M(D) {\n  param bias: f32[D] = zeros()\n  fn call(x: f32[.., D]) = sum(x + bias)\n}",
    ),
    "D0217": Page(
        "a result that is never used",
        "A value was computed and named, and nothing reads the name before it ends or is given again. "
        "Often another value was passed on by mistake. Begin a name with `_` to keep it all the same.",
        "dlc 1\nexport fn f(x: f32[4]) -> f32[4] {\n  let h = relu(x)\n  return 2 * x\n}",
        "dlc 1\nexport fn f(x: f32[4]) -> f32[4] {\n  let h = relu(x)\n  return 2 * h\n}",
    ),
    "D0223": Page(
        "`set` of something that is not a state",
        "`set` says what a `state` of the module around is after the training step, or an `inout` "
        "parameter of the entry point after the call. A `param` is changed by the optimizer alone, and a "
        "value within a function is named again with `let`.",
        "dlc 1\nmodule M() {\n  state count: i32 = 0\n  fn call(x: f32[..]) {\n    set cuont = count + 1\n"
        "    return x\n  }\n}",
        "dlc 1\nmodule M() {\n  state count: i32 = 0\n  fn call(x: f32[..]) {\n    set count = count + 1\n"
        "    return x\n  }\n}",
    ),
    "D0224": Page(
        "`names` of something that is not a weight",
        "On the right in `names` is the path of a weight, from the root module or from the "
        "module that the block is in. The blocks of a stack are numbered by a name that the key has in "
        "braces, `blocks[i].w`; `.T` is the transpose of a weight with two axes or more. A tuple has the "
        "weights that lie side by side in one array, `(q.w.T, k.w.T, v.w.T)`: all of them, in order, and "
        "their shapes differ along one axis at most. A weight has one name; a module with several "
        "instances is named from outside.",
        'dlc 1\nnames { "fc.weight" = weight.T }\nmodule Net() {\n  param w: f32[3, 2] = zeros()\n'
        "  export fn f(x: f32[3]) -> f32[2] = x @ w\n}",
        'dlc 1\nnames { "fc.weight" = w.T }\nmodule Net() {\n  param w: f32[3, 2] = zeros()\n'
        "  export fn f(x: f32[3]) -> f32[2] = x @ w\n}",
    ),
    "D0226": Page(
        "an entry point that is not a method of the model in Python",
        "Entry points are methods of the loaded model, as `model.predict(...)`. A model has names of its "
        "own, such as `save` and `weights`, and they come first. The entry point is still there: "
        '`model["save"](...)` calls it, and `dlc run` calls it as any other.',
        "dlc 1\nexport fn save(x: f32) -> f32 = x + 1",
        "dlc 1\nexport fn saved(x: f32) -> f32 = x + 1",
    ),
    "D0227": Page(
        "an `inout` parameter where nothing can be changed",
        "A call of an entry point changes the arrays that are passed for its `inout` parameters. Inside a "
        "text there are values, which nothing changes: functions take them and return new ones, and no "
        "function calls an entry point with `inout` parameters.",
        "dlc 1\nfn push(inout h: f32[4], x: f32) -> f32[4] = h + x\n"
        "export fn step(x: f32, inout h: f32[4]) -> f32 {\n  set h = push(h, x)\n  return sum(h)\n}",
        "dlc 1\nfn push(h: f32[4], x: f32) -> f32[4] = h + x\n"
        "export fn step(x: f32, inout h: f32[4]) -> f32 {\n  set h = push(h, x)\n  return sum(h)\n}",
    ),
    "D0228": Page(
        "an `inout` parameter that is not set once",
        "What is `inout` is set exactly once, by a `set` in the braces of the entry point itself; a loop "
        "or a branch gives the value that is set after it. A parameter that no call changes is written "
        "without `inout`.",
        "dlc 1\nexport fn step(x: f32, inout h: f32[4]) -> f32 {\n  return sum(h + x)\n}",
        "dlc 1\nexport fn step(x: f32, inout h: f32[4]) -> f32 {\n  set h = h + x\n  return sum(h + x)\n}",
    ),
    "D0225": Page(
        "an unknown or malformed limit",
        "`limit memory` takes a number of bytes; `limit deterministic`, `limit exact` and `limit "
        "fast_narrow` take nothing. Each is set once.",
        "dlc 1\nlimit memory\nexport fn f(x: f32) -> f32 = x + 1",
        "dlc 1\nlimit memory = 512MiB\nexport fn f(x: f32) -> f32 = x + 1",
    ),
    "D0229": Page(
        "an impossible mesh",
        "A text has at most one mesh. Its axes have different names, none of which is `none`, and from 1 "
        "rank on.",
        "dlc 1\nmesh data = 2, data = 2\nexport fn f(x: f32) -> f32 = x + 1",
        "dlc 1\nmesh data = 2, model = 2\nexport fn f(x: f32) -> f32 = x + 1",
    ),
}
