"""`dlc.from_jax`: the same results as the function, for sizes that are fixed and that calls choose."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

import numpy as np
import pytest

import dlc

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-jax")

import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

from tests.importers.stablehlo.agreement import check, compare, compiled, numbers  # noqa: E402

PARAMETERS = {"w": numbers(4, 3), "b": numbers(3, seed=1)}


def perceptron(p, x):
    logits = jnp.maximum(x @ p["w"] + p["b"], 0)
    return {"best": logits.argmax(-1), "likely": jax.nn.softmax(logits)}


def test_arguments_and_results_are_nested_as_in_the_function() -> None:
    compiled(perceptron, PARAMETERS, numbers(5, 4))


def test_inputs_and_results_have_the_names_of_the_function() -> None:
    model = dlc.from_jax(perceptron, PARAMETERS, numbers(5, 4)).model
    run = model.entry_points["run"]
    assert [each.name for each in run.inputs] == ["p_b", "p_w", "x"]
    assert "(best: i32[5], likely: f32[5, 3])" in str(run)


def test_arrays_that_a_function_closes_over_are_weights() -> None:
    table = numbers(40, 16)
    fast = dlc.from_jax(lambda ids: jnp.asarray(table)[ids], jnp.arange(3))
    assert [weight.name for weight in fast.model.artifact.manifest.weights] == ["constant"]
    compare([fast(jnp.array([1, 39, 7]))], [table[[1, 39, 7]]])


def test_sizes_of_calls_have_the_names_that_were_asked_for() -> None:
    fast = dlc.from_jax(perceptron, PARAMETERS, numbers(5, 4), dynamic={"x": {0: "B"}})
    assert [dim.name for dim in fast.model.entry_points["run"].dims] == ["B"]
    for count in (1, 7):
        x = jnp.asarray(numbers(count, 4))
        compare(
            jax.tree_util.tree_leaves(fast(PARAMETERS, x)),
            jax.tree_util.tree_leaves(perceptron(PARAMETERS, x)),
        )


def test_a_shape_may_be_said_in_the_words_of_jax() -> None:
    fast = dlc.from_jax(lambda x: x.reshape(-1, 2).sum(1), numbers(4), dynamic=["2*N"])
    compare([fast(numbers(6))], [numbers(6).reshape(-1, 2).sum(1)])
    with pytest.raises(dlc.CallError):
        fast(numbers(5))


def test_a_step_of_training_is_compiled() -> None:
    def loss(p, x, y):
        likely = jax.nn.log_softmax(jax.nn.gelu(x @ p["w"]) + p["b"])
        return -jnp.take_along_axis(likely, y[:, None], 1).mean()

    def step(p, x, y):
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return value, jax.tree_util.tree_map(lambda a, g: a - 0.1 * g, p, gradient)

    compiled(step, PARAMETERS, numbers(6, 4), np.array([0, 1, 2, 2, 1, 0]))


def test_brain_floats_and_bools_are_passed_and_returned() -> None:
    compiled(lambda x, flag: jnp.where(flag, x * 2, -x), jnp.ones(3, jnp.bfloat16), jnp.array(True))


def test_keys_for_random_numbers_are_passed_and_returned() -> None:
    fast = dlc.from_jax(lambda k: (jax.random.split(k), jax.random.uniform(k)), jax.random.key(0))
    keys, number = fast(jax.random.key(1))
    wanted = jax.random.key(1)
    compare([number], [jax.random.uniform(wanted)])
    compare([jax.random.key_data(keys)], [jax.random.key_data(jax.random.split(wanted))])


def test_a_function_that_returns_nothing_is_an_error() -> None:
    with pytest.raises(dlc.UsageError, match="returns no array"):
        dlc.from_jax(lambda _: None, numbers(3))


def test_an_exported_function_is_compiled() -> None:
    exported = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((3,), np.float32))
    compare([dlc.from_jax(exported)(numbers(3))], [np.sin(numbers(3))])


B, T = export.symbolic_shape("B, T") if hasattr(export, "symbolic_shape") else (2, 3)
POLYMORPHIC = {
    "matrix products": (lambda x: x @ x.T, (B, T)),
    "slices": (lambda x: (x[1:], x[:, ::2], x[-1:], x[: x.shape[0] // 2]), (B, T)),
    "reshape": (lambda x: (x.reshape(-1), x.reshape(x.shape[1], -1)), (B, T)),
    "padding": (lambda x: jnp.pad(x, ((1, 2), (0, 0))), (B, T)),
    "prefix sums": (lambda x: jnp.cumsum(x, 1), (B, T)),
    "order": (lambda x: (jnp.sort(x), x.argmax(1), jnp.tril(x @ x.T)), (B, T)),
    "loops": (lambda x: lax.scan(lambda c, row: (c + row, c * 2), x[0], x), (B, T)),
    "indices": (lambda x: x.at[jnp.arange(x.shape[0]), 0].add(2.0), (B, T)),
    "random": (lambda x: jax.random.normal(jax.random.PRNGKey(0), x.shape), (B, T)),
    "multiples": (lambda x: x.reshape(-1, 2).mean(1), (2 * B,)),
    "sums": (lambda x: x[1:] - x[:-1], (T + 1,)),
    "same convolution": (
        lambda x: lax.conv_general_dilated(x, jnp.ones((2, 1, 3, 3)), (2, 2), "SAME"),
        (B, 1, T, T),
    ),
}


@pytest.mark.parametrize("name", POLYMORPHIC)
def test_sizes_may_be_chosen_by_calls(name: str) -> None:
    function, shape = POLYMORPHIC[name]
    for b, t in ((3, 4), (5, 7)):
        sizes = [eval(str(size), {"B": b, "T": t}) for size in shape]
        wanted = jax.ShapeDtypeStruct(shape, np.float32)
        check(function, wanted, at=(numbers(*sizes),), B=b, T=t)


def test_constraints_of_jax_are_bounds_and_conditions_of_calls() -> None:
    b, t = export.symbolic_shape("b, t", constraints=["b <= 16", "t >= 3", "b >= t"])
    fast = dlc.from_jax(lambda x: x + 1, jax.ShapeDtypeStruct((b, t), np.float32))
    assert "b = 1..16, t = 3.." in str(fast.model)
    compare([fast(numbers(4, 3))], [numbers(4, 3) + 1])
    for shape, told in (((17, 3), "16"), ((4, 2), "3"), ((3, 4), "b - t is -1")):
        with pytest.raises(dlc.CallError, match=told):
            fast(numbers(*shape))


def test_code_that_decides_by_numbers_is_refused() -> None:
    with pytest.raises(dlc.Unsupported, match="D0719"):
        dlc.from_jax(lambda x: x if x.sum() > 0 else -x, numbers(3))


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(dlc.Unsupported, match=r"no numbers of type complex<f32>") as refused:
        dlc.from_jax(lambda x: jnp.fft.fft(x).real, numbers(3))
    assert {each.code for each in refused.value.diagnostics} == {"D0718", "D0710"}
    with pytest.raises(dlc.Unsupported, match="D0718"):
        dlc.from_jax(lambda x: x, jnp.ones(3, jnp.complex64))


def test_all_operations_that_are_not_imported_are_listed() -> None:
    with pytest.raises(dlc.Unsupported, match="lapack_spotrf"):
        dlc.from_jax(jnp.linalg.cholesky, numbers(3, 3))


def test_an_argument_that_is_not_there_is_an_error() -> None:
    with pytest.raises(dlc.UsageError, match="no argument y"):
        dlc.from_jax(lambda x: x, numbers(3), dynamic={"y": {0: "B"}})
    with pytest.raises(dlc.UsageError, match="axis 2"):
        dlc.from_jax(lambda x: x, numbers(3), dynamic=[{2: "B"}])


def test_other_arguments_than_those_exported_are_an_error() -> None:
    fast = dlc.from_jax(lambda x: x * 2, numbers(3))
    with pytest.raises(dlc.CallError, match="D0803"):
        fast(numbers(3), numbers(3))
