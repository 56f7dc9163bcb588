"""Error pages: control flow and derivatives (D04)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0401": Page(
        "a condition is one bool",
        "`if` and `while` take one decision. For a tensor of bools say whether all or any of them must "
        "hold, or choose for each element with `where`.",
        "if v > 1 then v * 2 else v",
        "where(v > 1, v * 2, v)",
    ),
    "D0402": Page(
        "the branches have different types",
        "What follows an `if` must know the dtype and the shape, whichever branch ran.",
        "if c then x else 0",
        "if c then x else zeros_like(x)",
    ),
    "D0403": Page(
        "a carried value changes its type",
        "A loop runs the same code at every step, so what a step hands to the next has one dtype and "
        "one shape, from the start on.",
        "scan x in xs with h = 0 { next h = concat(h, x) }",
        "scan x in xs with h = zeros([D]) { next h = h + x yield h }",
    ),
    "D0404": Page(
        "an input has no derivative",
        "Integers and bools do not change by small amounts. Differentiate with respect to the float "
        "that they select or scale.",
        "grad(loss, wrt=ids)",
        "grad(loss, wrt=emb)",
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
        "while err > eps with x = a { next x = step(x) }",
        "while err > eps with x = a limit 100 { next x = step(x) }",
    ),
    "D0407": Page(
        "a loop and what it walks along differ in size",
        "Everything that a `scan` walks along has one size on its axis, which is the number of steps.",
        "scan (x, m) in (xs, ms) ...   # xs: f32[10, 4], ms: f32[9]",
        "scan (x, m) in (xs[:9], ms) ...",
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
        "fn f(x: f32[3]) = sum(x) with vjp(x, dy) = dy",
        "fn f(x: f32[3]) = sum(x) with vjp(x, dy) = dy * ones([3])",
    ),
}
