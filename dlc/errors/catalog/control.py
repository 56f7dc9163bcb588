"""Error pages: control flow and derivatives (D04)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0401": Page(
        "a condition is one bool",
        "`if` and `while` take one decision. For a tensor of bools say whether all or any of them must "
        "hold, or choose for each element with `where`.",
        "dlc 1\nexport fn f(v: f32[4]) -> f32[4] = if v > 1 then v * 2 else v",
        "dlc 1\nexport fn f(v: f32[4]) -> f32[4] = where(v > 1, v * 2, v)",
    ),
    "D0402": Page(
        "the branches have different types",
        "What follows an `if` must know the dtype and the shape, whichever branch ran.",
        "dlc 1\nexport fn f(x: f32[4], c: bool) -> f32[4] = if c then x else [0.0]",
        "dlc 1\nexport fn f(x: f32[4], c: bool) -> f32[4] = if c then x else zeros([4])",
    ),
    "D0403": Page(
        "a carried value changes its type",
        "A loop runs the same code at every step, so what a step hands to the next has one dtype and "
        "one shape, from the start on.",
        "dlc 1\nexport fn f(xs: f32[5, 3]) -> f32[3] = scan x in xs with h = zeros([3]) { next h = "
        "concat([h, x]) }",
        "dlc 1\nexport fn f(xs: f32[5, 3]) -> f32[3] = scan x in xs with h = zeros([3]) { next h = "
        "h + x }",
    ),
    "D0404": Page(
        "an input has no derivative",
        "Integers and bools do not change by small amounts. Differentiate with respect to the float "
        "that they select or scale.",
        "dlc 1\nfn loss(ids: i32[3], w: f32[3]) -> f32 = sum(f32(ids) * w)\nexport fn f(ids: "
        "i32[3], w: f32[3]) -> f32[3] = grad(loss, wrt=ids)(ids, w)",
        "dlc 1\nfn loss(ids: i32[3], w: f32[3]) -> f32 = sum(f32(ids) * w)\nexport fn f(ids: "
        "i32[3], w: f32[3]) -> f32[3] = grad(loss, wrt=w)(ids, w)",
    ),
    "D0405": Page(
        "an operation has no derivative",
        "The derivative that was asked for passes through an operation that has none. If it should "
        "count as a constant there, say so.",
        "grad(f)",
        "fn f(x) = ... stop_gradient(g(x)) ...",
    ),
    "D0406": Page(
        "the derivative of a while needs a limit",
        "Going backwards through a loop takes what each round left behind, and the memory for that is "
        "planned before the call: `limit` says how many rounds there are at most.",
        "dlc 1\n"
        "export fn f(a: f32) -> f32 {\n"
        "  let x = while x > 1 with x = a { next x = x / 2 }\n"
        "  return x\n"
        "}\n"
        "export fn g(a: f32) -> f32 = grad(f)(a)",
        "dlc 1\n"
        "export fn f(a: f32) -> f32 {\n"
        "  let x = while x > 1 with x = a limit 100 { next x = x / 2 }\n"
        "  return x\n"
        "}\n"
        "export fn g(a: f32) -> f32 = grad(f)(a)",
    ),
    "D0407": Page(
        "a loop and what it walks along differ in size",
        "Everything that a `scan` walks along has one size on its axis, which is the number of steps.",
        "dlc 1\nexport fn f(xs: f32[10], ms: f32[9]) -> f32 =\n"
        "  scan (x, m) in (xs, ms) with s = 0.0 { next s = s + x * m }",
        "dlc 1\nexport fn f(xs: f32[10], ms: f32[9]) -> f32 =\n"
        "  scan (x, m) in (xs[:9], ms) with s = 0.0 { next s = s + x * m }",
    ),
    "D0408": Page(
        "a derivative is asked for in a way that does not fit the function",
        "A `vjp` takes one value for each result that is a float, of the same type, and names inputs "
        "that the function has.",
        "vjp(f, wrt=x)(x, dy=1.0)   # f(x): f32[2, 2]",
        "vjp(f, wrt=x)(x, dy=ones([2, 2]))",
    ),
    "D0409": Page(
        "a derivative rule gives something else than it must",
        "A rule gives one value for each input that is a float, of the type of that input.",
        "dlc 1\nfn f(x: f32[3]) = 2 * x with vjp(x, dy) = sum(dy)\n"
        "export fn g(x: f32[3]) -> f32[3] = vjp(f, wrt=x)(x, dy=ones([3]))",
        "dlc 1\nfn f(x: f32[3]) = 2 * x with vjp(x, dy) = 2 * dy\n"
        "export fn g(x: f32[3]) -> f32[3] = vjp(f, wrt=x)(x, dy=ones([3]))",
    ),
    # Loops and derivatives in model text.
    "D0421": Page(
        "a statement that has no place in or outside of this loop",
        "`next` and `yield` belong directly in the braces of a loop, `return` does not. A `while` yields "
        "nothing, because how many rounds it takes is not known.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = scan e in x with s = 0.0 { return s + e }",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = scan e in x with s = 0.0 { next s = s + e }",
    ),
    "D0422": Page(
        "a derivative by something that is not a parameter",
        "`wrt` names a parameter of the function, several of them in a tuple, or `params`, the weights. A "
        "value that the function takes from outside of itself must become a parameter first.",
        "dlc 1\nfn f(x: f32) = x * x\nexport fn g(x: f32) -> f32 = grad(f, wrt=y)(x)",
        "dlc 1\nfn f(x: f32) = x * x\nexport fn g(x: f32) -> f32 = grad(f, wrt=x)(x)",
    ),
    "D0423": Page(
        "a gradient of something that is not one float",
        "`grad` and `value_and_grad` take a function that gives one float. Sum its result up, or say with "
        "`vjp` how much each element counts.",
        "dlc 1\nfn f(x: f32[3]) = x * x\nexport fn g(x: f32[3]) -> f32[3] = grad(f, wrt=x)(x)",
        "dlc 1\nfn f(x: f32[3]) = sum(x * x)\nexport fn g(x: f32[3]) -> f32[3] = grad(f, wrt=x)(x)",
    ),
    "D0424": Page(
        "a derivative rule with other parameters than it gets",
        "`with vjp(x, dy)` names the parameters of the function, then one value for each of its results: "
        "the gradient that arrives there.",
        "dlc 1\nfn f(x: f32[3]) = 2 * x with vjp(x) = 2 * x\n"
        "export fn g(x: f32[3]) -> f32[3] = vjp(f, wrt=x)(x, dy=ones([3]))",
        "dlc 1\nfn f(x: f32[3]) = 2 * x with vjp(x, dy) = 2 * dy\n"
        "export fn g(x: f32[3]) -> f32[3] = vjp(f, wrt=x)(x, dy=ones([3]))",
    ),
    "D0425": Page(
        "a `next` that does not fit what is carried",
        "`next NAME` gives a value that the loop carries its value for the next step, once in each step. "
        "What is carried is listed behind `with`, each with its first value.",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = scan e in x with s = 0.0 { next t = s + e }",
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = scan e in x with s = 0.0 { next s = s + e }",
    ),
    "D0426": Page(
        "a value that a scan cannot walk along",
        "A `scan` goes along an axis of a tensor, through a range `0..N`, a stack or list of layers, or "
        "several of these in a tuple. A range does not end before it begins.",
        "dlc 1\nexport fn f(x: f32) -> f32 = scan i in 10 with s = x { next s = s / 2 }",
        "dlc 1\nexport fn f(x: f32) -> f32 = scan i in 0..10 with s = x { next s = s / 2 }",
    ),
    "D0427": Page(
        "a loop that carries or gives nothing",
        "The value of a loop is what it carries, then what it yields, so it does at least one of the two. "
        "A `while` carries what its condition looks at, or it would never end.",
        "dlc 1\nexport fn f(x: f32) -> f32 = while x > 1 { let y = x / 2 }",
        "dlc 1\nexport fn f(x: f32) -> f32 = while x > 1 with x = x { next x = x / 2 }",
    ),
    "D0428": Page(
        "a limit below 0",
        "The `limit` of a `while` is the largest number of rounds that it may take.",
        "dlc 1\nexport fn f(x: f32) -> f32 = while x > 1 with x = x limit -1 { next x = x / 2 }",
        "dlc 1\nexport fn f(x: f32) -> f32 = while x > 1 with x = x limit 50 { next x = x / 2 }",
    ),
    "D0430": Page(
        "a function with a rule of its own that uses more than its parameters",
        "A rule gives the derivative by each parameter. That by a weight or another tensor from outside "
        "would be lost without a word, so such tensors are passed as parameters.",
        "dlc 1\nmodule Net() {\n  param w: f32[3] = ones()\n"
        "  fn scaled(x: f32[3]) = w * x with vjp(x, dy) = w * dy\n"
        "  export fn g(x: f32[3]) -> f32[3] = vjp(scaled, wrt=x)(x, dy=ones([3]))\n}",
        "dlc 1\nmodule Net() {\n  param w: f32[3] = ones()\n"
        "  fn scaled(x: f32[3], w: f32[3]) = w * x with vjp(x, w, dy) = (w * dy, x * dy)\n"
        "  export fn g(x: f32[3]) -> f32[3] = vjp(scaled, wrt=x)(x, w, dy=ones([3]))\n}",
    ),
    "D0429": Page(
        "a `set` that could take effect any number of times",
        "What is `set` takes effect once, at the end of a training step. In the body of a `while`, or in a "
        "function that the loss differentiates itself, it would be computed an unknown number of times.",
        "dlc 1\nmodule M() {\n  param w: f32 = 0.5\n  state last: f32 = 0.0\n"
        "  fn call(x: f32) -> f32 = while x > 1 with x = x limit 9 {\n"
        "    set last = x\n    next x = x * w\n  }\n}\n"
        'train M {\n  data = npz("d.npz", x="x")\n  loss(x: f32) = call(x)\n  optimizer = sgd()\n}',
        "dlc 1\nmodule M() {\n  param w: f32 = 0.5\n  state last: f32 = 0.0\n"
        "  fn call(x: f32) -> f32 {\n"
        "    let y = while x > 1 with x = x limit 9 { next x = x * w }\n"
        "    set last = y\n    return y\n  }\n}\n"
        'train M {\n  data = npz("d.npz", x="x")\n  loss(x: f32) = call(x)\n  optimizer = sgd()\n}',
    ),
}
