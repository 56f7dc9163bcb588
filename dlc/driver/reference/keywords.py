"""The pages of the language's keywords; each example is a whole text."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent
from typing import Final

from dlc.driver.reference.page import Page

ALIASES: Final = {
    "accumulate": "train",
    "along": "scan",
    "and": "or",
    "as": "import",
    "average": "train",
    "batch": "train",
    "checkpoint": "train",
    "data": "train",
    "else": "if",
    "epochs": "train",
    "eval": "train",
    "false": "true",
    "freeze": "train",
    "from": "module",
    "in": "scan",
    "keep": "train",
    "loss_scale": "train",
    "key": "param",
    "loss": "train",
    "metric": "train",
    "next": "scan",
    "not": "or",
    "optimizer": "train",
    "precision": "train",
    "rate": "train",
    "reverse": "scan",
    "seed": "train",
    "stop": "train",
    "then": "if",
    "with": "fn",
    "yield": "scan",
}
"""Words that another word's page explains."""


def pages() -> Iterator[Page]:
    """The pages of all keywords but those of ALIASES."""
    return iter(_WORDS)


def _word(name: str, form: str, summary: str, example: str, derivative: str = "") -> Page:
    text = "dlc 1\n" + dedent(example).strip()
    return Page(
        name, "language: keywords", form, summary, example=text, derivative=derivative or _NO_VALUE
    )


_NO_VALUE: Final = "none: it is not a value"

_WORDS: Final = (
    _word(
        "import",
        'import nn (Linear)   import "blocks.dlm" (Block as B)   import "heads.dlm" as heads',
        "Brings in names of the library, or of another text in the same folder or below it.",
        """
        import nn (Linear as Dense)
        module Net() {
          use layer = Dense(4, 2)
          export fn forward(x: f32[3, 4]) -> f32[3, 2] = layer(x)
        }
        """,
    ),
    _word(
        "dim",
        "dim B = 1..1024   dim T = 2..   dim H, W",
        "Names sizes that each call of an entry point chooses, within bounds that include both ends.",
        """
        dim B = 1..1024
        export fn doubled(x: f32[B, 3]) -> f32[B, 3] = x + x
        """,
    ),
    _word(
        "module",
        'module Name(width, act: fn = relu, F: dtype = f32) from "start.safetensors" { ... }',
        "A layer or a network: parameters known when compiling, weights, submodules and functions. "
        "`from` names the file that its weights begin with.",
        """
        module Scale(width = 4, by = 2.0) {
          require width > 0, "there is something to scale"
          param w: f32[width] = ones()
          export fn scaled(x: f32[3, width]) -> f32[3, width] = by * w * x
        }
        """,
        "by all its weights at once: grad(f, wrt=params)",
    ),
    _word(
        "param",
        'param name: f32[in, out] = glorot_uniform() key "dense/kernel:0"',
        "A weight that training changes: its type, how it begins, and perhaps what weight files call "
        "it. Without an initial value it must come from a file.",
        """
        module Shift() {
          param b: f32[4] = zeros() key "bias"
          export fn shifted(x: f32[4]) -> f32[4] = x + b
        }
        """,
        "grad(f, wrt=params) gives those by all weights that f uses, with their paths as names",
    ),
    _word(
        "state",
        "state name: f32[width] = zeros()",
        "A value that is kept from step to step but not trained; `set` gives it its next value.",
        """
        module Centred() {
          state centre: f32[4] = zeros()
          fn call(x: f32[3, 4]) -> f32[3, 4] {
            let m = if training then mean(x, keep=-1) else centre
            set centre = lerp(centre, m, 0.1)
            return x - m
          }
          export fn centred(x: f32[3, 4]) -> f32[3, 4] = call(x)
        }
        """,
        "none: derivatives take a state for a constant",
    ),
    _word(
        "set",
        "set name = value",
        "What a `state` becomes at the end of a training step, or an `inout` parameter after a call; all "
        "take effect together. Where `training` is false it does nothing to a state.",
        """
        module Counted() {
          state calls: i32 = 0
          fn call(x: f32[4]) -> f32[4] {
            set calls = calls + 1
            return x
          }
          export fn counted(x: f32[4]) -> f32[4] = call(x)
        }
        """,
        "none: what a state becomes is not part of the result",
    ),
    _word(
        "inout",
        "export fn f(x: f32, inout h: f32[4]) -> f32 { ... set h = ... }",
        "A parameter of an entry point whose array the call changes where it is: the state of a stream, a "
        "cache of keys and values. `set` says what it is after the call.",
        """
        export fn pushed(x: f32, inout last: f32[4]) -> f32 {
          let all = concat([last[1:], [x]])
          set last = all
          return mean(all)
        }
        """,
        "that of the value from before the call, as of any other parameter",
    ),
    _word(
        "const",
        "const name = value",
        "A value that is known when the text is compiled: a number, a size, a text, a stored tensor.",
        """
        const classes = 10
        export fn first(x: f32[classes]) -> f32 = x[0]
        """,
        "none: it is a constant",
    ),
    _word(
        "use",
        "use name = Module(...)   use blocks = L * Block(width)   use head = Linear(4, 2) on cpu:1",
        "A submodule; its name becomes part of the paths of its weights. `L * Block` makes a stack.",
        """
        import nn (Linear)
        module Net() {
          use first = Linear(4, 8)
          use blocks = 3 * Linear(8, 8)
          export fn forward(x: f32[4]) -> f32[8] =
            scan block in blocks with h = first(x) { next h = relu(block(h)) }
        }
        """,
    ),
    _word(
        "fn",
        "fn name(x: f32[..], act: fn = relu) -> f32[..] = ...   fn f(x) = ... with vjp(x, dy) = ...",
        "A function: an expression behind `=`, or statements in braces that end with `return`. "
        "`with vjp` brings a derivative of its own.",
        """
        fn straight(x: f32[..]) = round(x) with vjp(x, dy) = dy
        export fn slope(x: f32[3]) -> f32[3] = vjp(straight)(x, dy=ones([3]))
        """,
        "of what it is made of, or by the rule behind `with vjp`",
    ),
    _word(
        "export",
        "export fn name(x: f32[B, 4]) -> (label: i32[B], score: f32[B]) = ...",
        "Makes a function an entry point of the compiled file and a method of the loaded model; the "
        "types of its parameters and results are obligatory.",
        """
        dim B = 1..64
        export fn best(scores: f32[B, 10]) -> (label: i32[B], score: f32[B]) =
          (label = argmax(scores), score = max(scores, axis=-1))
        """,
        "an entry point has that of its function: dlc run model.dlm --grad score:scores",
    ),
    _word(
        "let",
        "let y = x + 1   let y: f32[B] = x   let (q, k, v) = t   let (.., last) = t",
        "Names a value, takes a tuple apart, or a tensor whose first size is a literal. A name may be "
        "given again and means the new value from then on.",
        """
        export fn product(pair: f32[2, 8]) -> f32[8] {
          let (a, b) = pair
          let a = a + 1
          return a * b
        }
        """,
        "that of the value",
    ),
    _word(
        "return",
        "return value",
        "The value of a function's block, or of braces that stand for an expression.",
        """
        export fn smallest(x: f32[8]) -> f32 {
          let m = min(x)
          return m
        }
        """,
        "that of the value",
    ),
    _word(
        "require",
        'require condition, "why"',
        "A condition on parameters that must hold when the text is compiled.",
        """
        module Heads(width = 8, heads = 2) {
          require width % heads == 0, "the heads must divide the width"
          export fn split_up(x: f32[width]) -> f32[heads, width // heads] = reshape(x, [heads, _])
        }
        """,
    ),
    _word(
        "debug",
        "debug value",
        "Is printed by dlc run --values, and never changes what is computed.",
        """
        export fn scaled(x: f32[4]) -> f32[4] {
          let largest = max(abs(x))
          debug largest
          return x / largest
        }
        """,
        "none: it changes nothing",
    ),
    _word(
        "if",
        "if condition then a else b",
        "One of two values: chosen when compiling where the condition is known, and then the other side "
        "is not even typed; otherwise by one bool in each call.",
        """
        export fn scaled(x: f32[8]) -> f32[8] = if max(x) > 1 then x / max(x) else x
        """,
        "through the side that was taken",
    ),
    _word(
        "scan",
        "scan x in xs along 1 with h = h0 { next h = ...  yield y }",
        "Goes through an axis of a tensor, of several at once, through numbers `0..N` or stacked modules. "
        "`with` names what is carried, `next` gives it its value for the next step, `yield` one row of a "
        "result; `in reverse` begins at the end. It gives the carried values, then what was yielded.",
        """
        dim T = 1..512
        export fn sums(xs: f32[T, 8]) -> (last: f32[8], all: f32[T, 8]) {
          let (last, all) = scan x in xs with s = zeros([8]) {
            let t = s + x
            next s = t
            yield t
          }
          return (last = last, all = all)
        }
        """,
        "through the steps, as a scan in reverse",
    ),
    _word(
        "while",
        "while condition with x = x0 limit 100 { next x = ... }",
        "Goes on as long as the condition holds; it gives the carried values. A call that would take more "
        "steps than `limit` fails.",
        """
        export fn root(a: f32 = 2) -> f32 =
          while abs(x * x - a) > 1e-6 with x = a limit 100 { next x = (x + a / x) / 2 }
        """,
        "through the steps in reverse; it needs the `limit`, the most steps there can be",
    ),
    _word(
        "for",
        "[for (c, s) in [(64, 1), (128, 2)]: Block(_, c, s)]",
        "A list of layers, made when the text is compiled; a loop over values is a `scan`.",
        """
        import nn (Linear)
        module Net() {
          use layers = chain([for width in [16, 32, 8]: Linear(_, width)])
          export fn forward(x: f32[4]) -> f32[8] = layers(x)
        }
        """,
    ),
    _word(
        "or",
        "a and b   a or b   not a",
        "Of conditions, each one bool; `not` binds tighter than `and`, `and` tighter than `or`. Of tensors "
        "of bools: all, any and where.",
        """
        export fn inside(x: f32) -> bool = x > 0 and not x > 1
        """,
        "none: a bool has none",
    ),
    _word(
        "true",
        "true   false",
        "The two bools.",
        """
        export fn both(x: f32, keep: bool = true) -> f32 = if not keep then -x else x
        """,
        "none: a bool has none",
    ),
    _word(
        "training",
        "training",
        "True in the step that `train` makes, false in every exported function and metric; known when the "
        "text is compiled, so that the other side costs nothing.",
        """
        fn noisy(x: f32[8]) -> f32[8] = if training then x + 0.1 * normal([8]) else x
        export fn plain(x: f32[8]) -> f32[8] = noisy(x)
        """,
        "none: it is a constant",
    ),
    _word(
        "on",
        "on cpu:1 { ... }   use head = Linear(4, 2) on cpu:1   fn f(x: f32) -> f32 on cpu = ...",
        "Says on which device something is computed, or with `on stage 0 { ... }` on which stage of a "
        "pipeline of ranks, where the mesh has an axis `stage`.",
        """
        mesh stage = 2
        export fn squared(x: f32[8]) -> f32[8] {
          let y = on stage 0 { on cpu { x * x } }
          return on stage 1 { y + 1 }
        }
        """,
        "that of what is computed there",
    ),
    _word(
        "limit",
        "limit memory = 512MiB   limit deterministic   limit exact",
        "A promise about every call, which is proved when the text is compiled, or the text is refused. "
        "Behind `while` it is the most steps that there can be.",
        """
        limit memory = 64MiB
        export fn doubled(x: f32[1000]) -> f32[1000] = x + x
        """,
    ),
    _word(
        "mesh",
        "mesh data = 2, model = 2",
        "The ranks that train the text together, as a grid with named axes: batches are divided along "
        "`data`, and `split` divides weights along any axis; further splits follow from those. One "
        "process computes the whole.",
        """
        dim B = 1..64
        mesh data = 2, model = 2
        module Wide() {
          param w: f32[4, 8] split (none, model) = normal(0.1)
          export fn wide(x: f32[B, 4]) -> f32[B, 8] = x @ w
        }
        """,
    ),
    _word(
        "names",
        'names { "encoder.{i}.dense.weight" = blocks[i].w.T }',
        "How weight files from elsewhere call the weights; `{i}` stands for a number, `.T` for the "
        "transpose of the last two axes, a tuple for an array that holds several weights side by side.",
        """
        import nn (Linear)
        module Net() {
          use dense = Linear(4, 2)
          names {
            "fc.weight" = dense.w.T
            "fc.bias" = dense.b
          }
          export fn forward(x: f32[4]) -> f32[2] = dense(x)
        }
        """,
    ),
    _word(
        "train",
        "train Module { data = ...  loss(...) = ...  optimizer = ...  batch = ...  epochs = ... }",
        "How a module is trained: where the examples come from, the loss as a function of them, the "
        "optimizer; `metric NAME = ...` is reported as well, `checkpoint` says where the weights are kept. "
        "`freeze = PART` leaves parts of the module as they are, `optimizer(PART)` updates a part, and in "
        "those of `eval = PART` `training` is false. `accumulate = N` sums the gradients of N batches in a "
        "step, `average = ema(decay=0.999)` keeps averages of weights. `stop = early(loss, patience=5)` "
        "ends a training that gets no better, `keep = best(loss)` keeps the best checkpoint, "
        "`rate = plateau(loss)` lowers the learning rates; `precision = bf16` computes products in 16 "
        "bits, `loss_scale = 1024` scales the loss. With names, "
        "`train NAME for Module { ... }`, a module has several blocks. dlc train does it.",
        """
        import nn (Linear)
        dim B = 1..512
        module Iris() {
          use net = chain(Linear(4, 16), tanh, Linear(16, 3))
          export fn predict(x: f32[B, 4]) -> i32[B] = argmax(net(x))
        }
        train Iris {
          data = csv("iris.csv", x=columns(0, 4), y="species", test=0.2)
          loss(x: f32[B, 4], y: i32[B]) = mean(cross_entropy(net(x), y))
          metric accuracy = mean(f32(predict(x) == y))
          optimizer = adam(lr=1e-3)
          batch = 32
          epochs = 50
          seed = 1
          checkpoint = file("iris.safetensors", every=5)
        }
        """,
        "of the loss by all weights that it uses; what the optimizer does with it is no longer derived",
    ),
)
