"""Statements of random programs: elements, sums, products, views, places, layers, and control flow."""

from __future__ import annotations

from benchmarks.fuzz.program import Axis, Program, Step, Value, axis_of

UNARY = {
    **{name: f"p.{name}({{x}})" for name in ("sin", "cos", "tanh", "sigmoid", "abs", "softplus")},
    **{name: f"p.{name}({{x}})" for name in ("relu", "silu", "gelu", "elu", "selu", "mish", "erf")},
    **{name: f"p.{name}({{x}})" for name in ("softsign", "hardswish", "asinh", "atan", "square")},
    **{
        name: f"p.{name}({{x}})" for name in ("sign", "floor", "round", "hardsigmoid", "leaky_relu")
    },
}
"""Functions of all numbers, ours and what they are for JAX."""
BOUNDED = ("exp", "expm1", "sinh", "cosh", "asin", "acos", "atanh", "tan")
POSITIVE = ("log", "sqrt", "rsqrt", "log1p", "acosh")


def unary(program: Program) -> None:
    x = program.pick()
    assert x is not None
    name = program.random.choice(sorted(UNARY))
    program.let(f"{name}({x.name})", UNARY[name].format(x=x.name), x.shape)


def bounded(program: Program) -> None:
    """Functions that are not defined everywhere, or grow fast, of what was made small or positive."""
    x = program.pick()
    assert x is not None
    if program.random.random() < 0.5:
        name, inner = program.random.choice(BOUNDED), f"0.75 * {{0}}tanh({x.name})"
    else:
        name, inner = program.random.choice(POSITIVE), f"{{0}}abs({x.name}) + 1.25"
    program.let(f"{name}({inner.format('')})", f"p.{name}({inner.format('p.')})", x.shape)


def binary(program: Program) -> None:
    """Arithmetic, broadcast: an axis is missing, has the size 1 or the same one."""
    x = program.pick()
    assert x is not None
    y = program.pick(wanted=lambda v: _stretches(v, x)) or x
    name = program.random.choice(("+", "-", "*", "/", "maximum", "minimum", "atan2", "%"))
    pair = [x.name, y.name]
    if name in ("+", "-", "*") and program.random.random() < 0.4:
        pair.reverse()
    one, two = pair
    match name:
        case "/":
            two = f"(1.5 + {two} * {two})"
            program.let(f"{one} / {two}", f"{one} / {two}", x.shape)
        case "%":
            program.let(f"{one} % 0.75", f"p.remainder({one}, 0.75)", x.shape)
        case "+" | "-" | "*":
            program.let(f"{one} {name} {two}", f"{one} {name} {two}", x.shape)
        case "atan2":
            program.let(f"atan2({one}, {two} + 3.5)", f"p.atan2({one}, {two} + 3.5)", x.shape)
        case _ if x is y:
            program.let(f"{name}({one}, 0.25)", f"p.{name}({one}, 0.25)", x.shape)
        case _:
            program.let(f"{name}({one}, {two})", f"p.{name}({one}, {two})", x.shape)


def _stretches(y: Value, x: Value) -> bool:
    if y.rank > x.rank:
        return False
    behind = x.shape[x.rank - y.rank :]
    return all(a == b or a.text == "1" for a, b in zip(y.shape, behind, strict=True))


def power(program: Program) -> None:
    x = program.pick()
    assert x is not None
    if program.random.random() < 0.5:
        n = program.random.choice((2, 3))
        program.let(f"{x.name} ** {n}", f"{x.name} ** {n}", x.shape)
    else:
        n = program.random.choice(("0.5", "-1.5", "2.5"))
        ours, theirs = (f"({p}abs({x.name}) + 0.5) ** {n}" for p in ("", "p."))
        program.let(ours, theirs, x.shape)


def chosen(program: Program) -> None:
    x = program.pick()
    assert x is not None
    y = program.pick(wanted=lambda v: _stretches(v, x)) or x
    ours = f"where({x.name} > 0.1, {y.name} * 2.0, {x.name})"
    program.let(ours, f"p.where({x.name} > 0.1, {y.name} * 2.0, {x.name})", x.shape)
    if program.random.random() < 0.3:
        program.let(f"clip({x.name}, -0.8, 0.9)", f"p.clip({x.name}, -0.8, 0.9)", x.shape)


REDUCTIONS = ("sum", "mean", "max", "min", "variance", "norm", "logsumexp", "product")


def reduced(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return
    axis, name = program.random.randrange(x.rank), program.random.choice(REDUCTIONS)
    keep = program.random.random() < 0.4
    kept = (axis_of(1),) if keep else ()
    inner = f"{x.name} + 0.5" if name in ("norm", "product") else x.name
    ours = f"{name}({inner}, axis={axis}{', keepdims=true' if keep else ''})"
    theirs = f"p.{name}({inner}, axis={axis}, keepdims={keep})"
    program.let(ours, theirs, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))


def rows(program: Program) -> None:
    """What is computed along an axis and keeps the shape."""
    x = program.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return
    random, axis = program.random, program.random.randrange(x.rank)
    name = random.choice(
        ("softmax", "log_softmax", "cumsum", "cumprod", "cummax", "cummin", "sort", "flip")
    )
    program.let(f"{name}({x.name}, axis={axis})", f"p.{name}({x.name}, axis={axis})", x.shape)


def normalised(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank > 0 and v.shape[-1].text not in ("1", "2"))
    if x is None:
        return
    name = program.random.choice(("layer_norm", "rms_norm"))
    ours = f"{name}({x.name}, eps=0.01)"
    program.let(ours, f"p.{name}({x.name}, eps=0.01)", x.shape)


def running(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return
    axis, random = program.random.randrange(x.rank), program.random
    reverse, exclusive = random.random() < 0.5, random.random() < 0.5
    flags = f"reverse={reverse}, exclusive={exclusive}"
    ours = f"cumsum({x.name}, axis={axis}, {flags.lower()})"
    program.let(ours, f"p.cumsum({x.name}, axis={axis}, {flags})", x.shape)


# Products.


def multiplied(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 2 and v.elements <= 150)
    if x is None:
        return
    inner = x.shape[-1]
    y = program.pick(wanted=lambda v: v.rank == 2 and v.shape[0] == inner)
    if y is not None and program.random.random() < 0.6:
        shape = (*x.shape[:-1], y.shape[1])
        program.let(f"{x.name} @ {y.name}", f"{x.name} @ {y.name}", shape)
        return
    axes = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    ours = f"{x.name} @ permute({x.name}, {axes}) * 0.25"
    theirs = f"{x.name} @ p.transpose({x.name}, {axes}) * 0.25"
    program.let(ours, theirs, (*x.shape[:-1], x.shape[-2]))


EINSUMS = (
    ("abc,ab->ac", 3),
    ("abc->cb", 3),
    ("ab,ac->bc", 2),
    ("ab->b", 2),
    ("ab,ab->a", 2),
    ("a,b->ab", 1),
    ("a,a->", 1),
)


def einsum(program: Program) -> None:
    equation, rank = program.random.choice(EINSUMS)
    x = program.pick(wanted=lambda v: v.rank == rank and v.elements <= 60)
    if x is None:
        return
    given, result = equation.split("->")
    first, *rest = given.split(",")
    named = dict(zip(first, x.shape, strict=True))
    operands = [x.name]
    for letters in rest:
        other = _operand(program, letters, named)
        if other is None:
            return
        operands.append(other.name)
        named |= dict(zip(letters, other.shape, strict=True))
    arguments = f'"{equation}", {", ".join(operands)}'
    shape = tuple([named[letter] for letter in result])
    program.let(f"einsum({arguments})", f"p.einsum({arguments})", shape)


def _operand(program: Program, letters: str, named: dict[str, Axis]) -> Value | None:
    """A value whose axes are those already named, and others where letters are new."""
    return program.pick(wanted=lambda v: v.rank == len(letters) and _fits(v, letters, named))


def _fits(value: Value, letters: str, named: dict[str, Axis]) -> bool:
    pairs = zip(letters, value.shape, strict=True)
    return value.elements <= 30 and all(named.get(letter, axis) == axis for letter, axis in pairs)


def attended(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank in (2, 3) and v.elements <= 100)
    if x is None:
        return
    causal = program.random.random() < 0.5
    operands = f"{x.name}, {x.name} * 0.5, {x.name}"
    ours = f"attention({operands}, scale=0.625, causal={str(causal).lower()})"
    program.let(ours, f"p.attention({operands}, 0.625, {causal})", x.shape)


def convolved(program: Program) -> None:
    """Along one spatial axis, with a kernel that is made of the picture itself."""
    x = program.pick(
        wanted=lambda v: v.rank == 3 and v.shape[2].is_fixed and v.shape[1].text in ("3", "4", "5")
    )
    if x is None:
        return
    channels, length = int(x.shape[2].text), int(x.shape[1].text)
    padding, stride = program.random.choice((0, 1)), program.random.choice((1, 2))
    ours = f"full([2, {channels}, 2], 0.25, dtype={{F}}) * sum(tanh({x.name}))"
    theirs = f"p.full((2, {channels}, 2), 0.25, {x.name}.dtype) * p.sum(p.tanh({x.name}))"
    w = program.let(ours, theirs, tuple([axis_of(n) for n in (2, channels, 2)]))
    out = (length + 2 * padding - 2) // stride + 1
    ours = f"conv({x.name}, {w.name}, stride={stride}, padding={padding})"
    theirs = f"p.conv({x.name}, {w.name}, {stride}, {padding})"
    program.let(ours, theirs, (x.shape[0], axis_of(out), axis_of(2)))


def pooled(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank == 3 and v.shape[1].text in ("2", "3", "4", "5"))
    if x is None:
        return
    name, stride = (
        program.random.choice(("max_pool1d", "avg_pool1d")),
        program.random.choice((1, 2)),
    )
    out = (int(x.shape[1].text) - 2) // stride + 1
    ours = f"{name}({x.name}, 2, stride={stride})"
    program.let(ours, f"p.{name}({x.name}, 2, {stride})", (x.shape[0], axis_of(out), x.shape[2]))


# Views.


def permuted(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 2)
    if x is None:
        return
    axes = list(range(x.rank))
    program.random.shuffle(axes)
    shape = tuple([x.shape[k] for k in axes])
    program.let(f"permute({x.name}, {axes})", f"p.transpose({x.name}, {axes})", shape)


def indexed(program: Program) -> None:
    """One place, a stretch, a step, or a new axis, of some axes."""
    x = program.pick(wanted=lambda v: v.rank >= 1)
    if x is None:
        return
    parts: list[str] = []
    shape: list[Axis] = []
    random = program.random
    for axis in x.shape:
        size = min(axis.sizes)
        match random.randrange(6):
            case 0 if size > 1 and axis.is_fixed:
                parts.append(str(random.choice((0, -1, size - 1))))
            case 1 if size > 1 and axis.is_fixed:
                start = random.randrange(1, size)
                parts.append(f"{start}:")
                shape.append(axis_of(size - start))
            case 2 if size > 2 and axis.is_fixed:
                parts.append("::2")
                shape.append(axis_of((size + 1) // 2))
            case 3 if size > 1 and axis.is_fixed:
                parts.append(":-1")
                shape.append(axis_of(size - 1))
            case 3 if axis.text in program.dims:
                parts.append("1:")
                one, two = axis.sizes
                shape.append(Axis((one - 1, two - 1), f"{axis.text} - 1"))
            case 4 if x.rank < 4:
                parts.append("NEW, :")
                shape += [axis_of(1), axis]
            case _:
                parts.append(":")
                shape.append(axis)
    index = ", ".join(parts)
    program.let(
        f"{x.name}[{index.replace('NEW', 'new')}]",
        f"{x.name}[{index.replace('NEW', 'None')}]",
        shape,
    )


def reshaped(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 2)
    if x is None:
        return
    first, second, *rest = x.shape
    one, two = (a * b for a, b in zip(first.sizes, second.sizes, strict=True))
    fixed = first.is_fixed and second.is_fixed
    joined = Axis((one, two), str(one) if fixed else f"({first.text}) * ({second.text})")
    behind = "".join(f", {axis.text}" for axis in rest)
    ours = f"reshape({x.name}, [_{behind}])"
    program.let(ours, f"p.reshape({x.name}, (-1,) + {x.name}.shape[2:])", (joined, *rest))


def joined(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 1 and v.elements <= 150)
    if x is None:
        return
    random = program.random
    axis = random.randrange(x.rank)
    name = random.choice(("concat", "stack", "repeat", "pad", "roll"))
    one, two = x.shape[axis].sizes
    fixed = x.shape[axis].is_fixed
    twice = Axis((2 * one, 2 * two), str(2 * one) if fixed else f"2 * ({x.shape[axis].text})")
    longer = (*x.shape[:axis], twice, *x.shape[axis + 1 :])
    match name:
        case "stack":
            shape = (*x.shape[:axis], axis_of(2), *x.shape[axis:])
            ours = f"stack([{x.name}, {x.name} * 0.5], axis={axis})"
            program.let(ours, f"p.stack([{x.name}, {x.name} * 0.5], axis={axis})", shape)
        case "concat":
            ours = f"concat([{x.name}, sin({x.name})], axis={axis})"
            program.let(ours, f"p.concat([{x.name}, p.sin({x.name})], axis={axis})", longer)
        case "repeat":
            ours = f"repeat({x.name}, 2, axis={axis})"
            program.let(ours, f"p.repeat({x.name}, 2, axis={axis})", longer)
        case "roll":
            if min(x.shape[axis].sizes) > 1:
                ours = f"roll({x.name}, 1, axis={axis})"
                program.let(ours, f"p.roll({x.name}, 1, axis={axis})", x.shape)
        case _:
            if fixed:
                by = ["(1, 0)" if k == axis else "(0, 0)" for k in range(x.rank)]
                shape = (*x.shape[:axis], axis_of(one + 1), *x.shape[axis + 1 :])
                both = f"pad({x.name}, [{', '.join(by)}])"
                program.let(both, f"p.{both}", shape)


def triangle(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 2)
    if x is not None:
        name = program.random.choice(("tril", "triu"))
        program.let(f"{name}({x.name})", f"p.{name}({x.name})", x.shape)


# Places.


def taken(program: Program) -> None:
    """Rows by integers from inputs, brought inside."""
    x = program.pick(wanted=lambda v: v.rank >= 1 and v.elements <= 80)
    n = program.pick("i", lambda v: v.elements <= 12)
    if x is None or n is None:
        return
    size = min(x.shape[0].sizes)
    both = f"{x.name}[{n.name} % {size}]"
    program.let(both, both, (*n.shape, *x.shape[1:]))


def updated(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 1)
    if x is None:
        return
    size = min(x.shape[0].sizes)
    place = program.random.randrange(size)
    value = f"{x.name}[0] * 0.5 + 0.25"
    mode = program.random.choice(("set", "add", "multiply"))
    ours = f'update({x.name}, at=[{place}{", .." if x.rank > 1 else ""}], {value}, mode="{mode}")'
    program.let(ours, f"{x.name}.at[{place}].{mode}({value})", x.shape)


def added_at(program: Program) -> None:
    """Rows that are added at places that may be equal."""
    x = program.pick(wanted=lambda v: v.rank >= 1 and v.elements <= 80)
    n = program.pick("i", lambda v: v.rank == 1 and v.elements <= 12)
    if x is None or n is None:
        return
    size = min(x.shape[0].sizes)
    places = f"{n.name} % {size}"
    rest = ", .." if x.rank > 1 else ""
    ours = f'update({x.name}, at=[{places}{rest}], {x.name}[{places}] * 0.5, mode="add")'
    program.let(ours, f"{x.name}.at[{places}].add({x.name}[{places}] * 0.5)", x.shape)


def first_of_order(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.rank >= 1)
    if x is None:
        return
    k = program.random.randint(1, min(x.shape[-1].sizes))
    program.let(
        f"top_k({x.name}, {k}).0", f"p.top_k({x.name}, {k})[0]", (*x.shape[:-1], axis_of(k))
    )


def placed(program: Program) -> None:
    """Where the largest element stands: integers, which become floats again."""
    x = program.pick(wanted=lambda v: v.rank >= 1)
    if x is None:
        return
    axis, name = program.random.randrange(x.rank), program.random.choice(("argmax", "argmin"))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    program.let(f"{name}({x.name}, axis={axis})", f"p.{name}({x.name}, axis={axis})", shape, "i")


def integers(program: Program) -> None:
    n = program.pick("i")
    if n is None:
        return
    operation = program.random.choice(("+ 3", "* 2", "- 5", "// 3", "% 4", "// -2"))
    both = f"{n.name} {operation}"
    made = program.let(both, both, n.shape, "i")
    if program.random.random() < 0.5:
        x = program.pick()
        assert x is not None
        program.let(f"{{F}}({made.name})", f"{made.name}.astype({x.name}.dtype)", n.shape)


# Control flow.


def scanned(program: Program) -> None:
    """Along the first axis, from either end."""
    x = program.pick(wanted=lambda v: v.rank >= 1 and v.elements <= 150)
    if x is None:
        return
    random = program.random
    back = random.random() < 0.4
    function = random.choice(("tanh", "sin", "sigmoid"))
    sizes = ", ".join(axis.text for axis in x.shape[1:])
    start = f"zeros([{sizes}], dtype={{F}})" if sizes else "{F}(0.0)"
    h, s = program.fresh(), program.fresh()
    program.ours.append(
        f"let ({h}, {s}) = scan r in {'reverse ' if back else ''}{x.name} with h = {start} "
        f"{{{{ let t = {function}(h + r)  next h = t  yield t * r }}}}"
    )
    program.theirs.append(
        f"{h}, {s} = p.scan(lambda h, r: (p.{function}(h + r), p.{function}(h + r) * r), {x.name}, {back})"
    )
    program.values += [Value(h, x.shape[1:]), Value(s, x.shape)]


def counted(program: Program) -> None:
    """A loop over numbers."""
    x = program.pick(wanted=lambda v: v.elements <= 150)
    assert x is not None or not program.values
    if x is None:
        return
    ours = f"scan i in 0..3 with h = {x.name} {{{{ next h = sin(h) + 0.25 * {{F}}(i) }}}}"
    program.let(ours, f"p.counted({x.name}, 3)", x.shape)


def repeated(program: Program) -> None:
    """A `while` with a limit, whose rounds the numbers decide."""
    x = program.pick(wanted=lambda v: v.rank > 0 and v.elements <= 150)
    if x is None:
        return
    ours = f"while max(abs(h)) > 0.1 with h = tanh({x.name}) limit 8 {{{{ next h = h * 0.5 }}}}"
    program.let(ours, f"p.halved(p.tanh({x.name}), 8)", x.shape)


def decided(program: Program) -> None:
    x = program.pick(wanted=lambda v: v.elements <= 150)
    if x is None:
        return
    ours = f"if sum({x.name}) > 0.1 then sin({x.name}) else {x.name} * 0.5"
    program.let(ours, f"p.decided({x.name})", x.shape)


def helped(program: Program) -> None:
    """A function or a module of the text."""
    x = program.pick(wanted=lambda v: v.rank >= 1)
    if x is None:
        return
    name = program.random.choice(("doubled", "mixed"))
    program.let(f"{name}({x.name})", f"p.{name}({x.name})", x.shape)


STEPS: tuple[Step, ...] = (
    *(unary, unary, unary, bounded, binary, binary, binary, power, chosen, reduced, reduced, rows),
    *(rows, normalised, running, multiplied, multiplied, einsum, attended, convolved, pooled),
    *(permuted, indexed, indexed, indexed, reshaped, joined, joined, triangle, taken, updated),
    *(added_at, first_of_order, placed, integers, scanned, counted, repeated, decided, helped),
)
