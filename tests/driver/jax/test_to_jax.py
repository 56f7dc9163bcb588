"""`dlc.to_jax`: entry points under the transformations of JAX give the values and gradients of JAX."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportMissingImports=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import concurrent.futures
import gc

import numpy as np
import pytest

import dlc
from dlc.cli import main

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'dlc[jax]'")
jnp = jax.numpy

NET = """dlc 1
import nn (Linear)
dim B = 1..64
module Net {
  use net = chain(Linear(4, 8), tanh, Linear(8, 3))
  ## The scores of each row.
  export fn scores(x: f32[B, 4]) -> f32[B, 3] = net(x)
  export fn loss(x: f32[B, 4], label: i32[B]) -> f32 = mean(sum(one_hot(label, 3) * net(x) ** 2, axis=1))
}
"""


@pytest.fixture(scope="module")
def model() -> dlc.Model:
    return dlc.compile(text=NET, weights="init:0", threads=2)


def params_of(model: dlc.Model) -> dict:
    return {path: jnp.asarray(values) for path, values in model.weights.items()}


def scores(params, x):
    hidden = jnp.tanh(x @ params["net.0.w"] + params["net.0.b"])
    return hidden @ params["net.2.w"] + params["net.2.b"]


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)


def near(found, wanted) -> None:
    largest = max([float(np.abs(x).max()) for x in jax.tree.leaves(wanted)], default=0)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * largest)


def test_a_call_gives_the_bits_of_the_entry_point_at_every_size(model: dlc.Model) -> None:
    function = dlc.to_jax(model.scores)
    for count in (1, 5, 64):
        x = rows(count)
        assert np.array_equal(function(x), model.scores(x))
        assert np.array_equal(jax.jit(function)(x=x), model.scores(x))
    assert function.__doc__ == "The scores of each row."


def test_shapes_are_solved_without_a_call(model: dlc.Model) -> None:
    found = jax.eval_shape(dlc.to_jax(model.scores), jax.ShapeDtypeStruct((7, 4), jnp.float32))
    assert (found.shape, found.dtype) == ((7, 3), jnp.float32)


def test_gradients_are_those_of_jax_to_any_order(model: dlc.Model) -> None:
    function, params, x = dlc.to_jax(model.scores), params_of(model), jnp.asarray(rows(3))

    def first(of):
        return jax.grad(lambda x: (of(x) ** 2).sum())

    def second(of):
        return jax.grad(lambda x: (first(of)(x) ** 2).sum())

    def own(x):
        return scores(params, x)

    near(first(function)(x), first(own)(x))
    near(jax.jit(second(function))(x), second(own)(x))


def test_weights_as_arguments_are_trained_by_jax(model: dlc.Model) -> None:
    function = dlc.to_jax(model.loss, params=True)
    x, label = rows(16), np.arange(16, dtype=np.int32) % 3

    def own(params, x, label):
        return (jax.nn.one_hot(label, 3) * scores(params, x) ** 2).sum(1).mean()

    params = params_of(model)
    near(jax.grad(function)(params, x, label), jax.grad(own)(params, x, label))
    step = jax.jit(jax.value_and_grad(function))
    losses = []
    for _ in range(5):
        loss, gradients = step(params, x, label)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 2
    trained = model.with_weights({path: np.asarray(each) for path, each in params.items()})
    assert trained.loss(x, label) < losses[-1]


def test_weights_that_are_left_out_are_those_of_the_model(model: dlc.Model) -> None:
    function, x = dlc.to_jax(model.scores, params=True), rows(2)
    near(function({}, x), model.scores(x))
    moved = function({"net.2.b": np.asarray(model.weights["net.2.b"]) + 1}, x)
    near(moved, np.asarray(model.scores(x)) + 1)


def test_vmap_calls_for_one_row_after_the_other(model: dlc.Model) -> None:
    function, params = dlc.to_jax(model.scores), params_of(model)
    x = np.stack([rows(2), rows(2) + 1])
    near(jax.vmap(function)(x), jax.vmap(lambda x: scores(params, x))(x))
    each = jax.vmap(jax.grad(lambda x: function(x).sum()))(x)
    near(each, jax.vmap(jax.grad(lambda x: scores(params, x).sum()))(x))


def test_a_loop_of_jax_calls_compiled_code(model: dlc.Model) -> None:
    function = dlc.to_jax(model.scores)

    def step(x, _):
        y = function(x)
        return jnp.concatenate([y, y[:, :1]], axis=1), y

    last, all_ = jax.lax.scan(step, jnp.asarray(rows(2)), length=3)
    assert all_.shape == (3, 2, 3) and np.isfinite(last).all()


def test_many_threads_may_call_at_once(model: dlc.Model) -> None:
    function = jax.jit(dlc.to_jax(model.scores))
    inputs = [rows(9) + k for k in range(16)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(function, inputs))
    assert all(np.array_equal(y, model.scores(x)) for x, y in zip(inputs, found, strict=True))


def test_the_code_lives_as_long_as_programs_of_jax_have_it() -> None:
    x = rows(2)
    model = dlc.compile(text=NET, weights="init:1")
    wanted, function = model.scores(x), jax.jit(dlc.to_jax(model.scores))
    function(x)
    del model
    gc.collect()
    assert np.array_equal(function(x), wanted)


def test_an_artifact_has_its_gradients_with_it(model: dlc.Model, tmp_path) -> None:
    model.save(tmp_path / "net.dlc")
    function = dlc.to_jax(dlc.load(tmp_path / "net.dlc").scores)
    x, params = jnp.asarray(rows(2)), params_of(model)
    near(jax.grad(lambda x: function(x).sum())(x), jax.grad(lambda x: scores(params, x).sum())(x))


def test_results_and_sizes_by_name() -> None:
    text = (
        "dlc 1\ndim T\nexport fn f(x: f32) -> (grown: f32[T], once: f32) = (x * ones([T]), 2 * x)\n"
    )
    function = dlc.to_jax(dlc.compile(text=text).f)
    found = jax.jit(lambda x: function(x, T=4))(jnp.float32(1.5))
    assert found._fields == ("grown", "once")
    near(found.grown, np.full(4, 1.5, np.float32))
    assert jax.grad(lambda x: function(x, T=4).grown.sum())(2.0) == 4


def test_bf16_and_integers_pass() -> None:
    text = "dlc 1\nexport fn f(x: bf16[3], n: i32[3]) -> (y: bf16[3], m: i32[3]) = (2 * x, n + 1)\n"
    function = dlc.to_jax(dlc.compile(text=text).f)
    found = function(jnp.ones(3, jnp.bfloat16), jnp.arange(3, dtype=jnp.int32))
    assert found.y.dtype == jnp.bfloat16 and found.m.tolist() == [1, 2, 3]


def test_64_bits_need_jax_to_have_them() -> None:
    function = dlc.to_jax(dlc.compile(text="dlc 1\nexport fn f(x: f64[2]) -> f64[2] = 2 * x\n").f)
    with pytest.raises(dlc.UsageError, match=r"D0935.*\n.*jax_enable_x64"):
        function(jnp.ones(2))
    with jax.enable_x64(True):
        assert function(np.array([1e-300, 1.0])).tolist() == [2e-300, 2.0]


def test_an_error_in_a_call_names_the_line() -> None:
    text = "dlc 1\nexport fn f(x: f32[3], k: i32) -> f32 = x[k]\n"
    function = jax.jit(dlc.to_jax(dlc.compile(text=text).f))
    assert function(np.arange(3.0, dtype=np.float32), np.int32(2)) == 2
    with pytest.raises(Exception, match=r"D0807.*the index 7 is out of range") as caught:
        jax.block_until_ready(function(np.zeros(3, np.float32), np.int32(7)))
    assert not isinstance(caught.value, dlc.DlcError)


def test_wrong_arguments_are_refused(model: dlc.Model) -> None:
    function = dlc.to_jax(model.scores)
    with pytest.raises(
        dlc.CallError, match=r"D0802.*x is float16\[2, 4\].*\n.*astype\(jnp.float32\)"
    ):
        function(jnp.ones((2, 4), jnp.float16))
    with pytest.raises(dlc.CallError, match="D0803"):
        function(jnp.ones((2, 5)))
    with pytest.raises(dlc.CallError, match="D0804"):
        function(jnp.ones((65, 4)))
    with pytest.raises(dlc.CallError, match=r"D0801.*no weight 'net.1.w'"):
        dlc.to_jax(model.scores, params=True)({"net.1.w": 0}, rows(1))
    with pytest.raises(dlc.UsageError, match="D0902"):
        dlc.to_jax(model)


def test_what_changes_arrays_is_refused() -> None:
    text = "dlc 1\nexport fn f(x: f32, inout h: f32) -> f32 {\n  set h = h + x\n  return h\n}\n"
    with pytest.raises(dlc.Unsupported, match=r"D0726.*f changes h in place"):
        dlc.to_jax(dlc.compile(text=text).f)


def test_counted_sizes_are_refused() -> None:
    text = "dlc 1\nexport fn f(x: f32[9]) -> f32[_] = compress(x, x > 1)\n"
    with pytest.raises(dlc.Unsupported, match="D0725"):
        dlc.to_jax(dlc.compile(text=text).f)


def test_a_model_of_kernels_has_no_gradient(tmp_path, capsys) -> None:
    text = "dlc 1\nexport fn f(x: f32[4]) -> f32[4] = sin(x)\n"
    (tmp_path / "f.dlm").write_text(text)
    assert main(["show", str(tmp_path / "f.dlm"), "--stage", "kernel"]) == 0
    kernels = tmp_path / "f.dlir"
    kernels.write_text(capsys.readouterr().out)
    function = dlc.to_jax(dlc.compile(kernels, trust_ir=True).f)
    near(function(jnp.ones(4)), np.sin(np.ones(4, np.float32)))
    with pytest.raises(dlc.UsageError, match=r"D0905.*kernel"):
        jax.grad(lambda x: function(x).sum())(jnp.ones(4))


def test_a_function_of_jax_comes_back_with_the_gradient_of_dlc() -> None:
    def own(x):
        return jnp.sin(x) @ jnp.arange(3.0)

    x = jnp.ones((2, 3))
    there_and_back = dlc.to_jax(dlc.from_jax(own, x, dynamic=[{0: "B"}]).model.run)

    def total(of):
        return lambda x: (jnp.asarray(jax.tree.leaves(of(x))[0]) ** 2).sum()

    near(jax.grad(total(there_and_back))(jnp.ones((5, 3))), jax.grad(total(own))(jnp.ones((5, 3))))
