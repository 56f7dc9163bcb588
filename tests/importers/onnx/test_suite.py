"""ONNX's own test suite: nothing that runs gives other results than it says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dlc.driver.source.importing import import_model
from dlc.errors import Unsupported, UsageError
from dlc.importers.onnx.importing import IMPORTERS
from dlc.importers.onnx.reading import graph_of
from tests.importers.onnx.models import model_of
from tests.importers.onnx.suite import KINDS, outcomes
from tests.suites import together

X = np.arange(12, dtype=np.float32).reshape(3, 4)

SHARE = {
    "Node": (
        # Operators that ONNX says to be made of others.
        *("swish", "hannwindow_symmetric", "rotary_embedding", "center_crop_pad_crop", "sce_mean"),
        *("nllloss_NCd1d2", "attention_4d_causal",),
        *("flexattention_score_mod", "linear_attention_delta", "causal_conv_with_state_with_past_state"),
        # Inputs that decide shapes.
        *("reduce_sum_keepdims_example", "reshape_allowzero_reordered", "tril_pos"),
        *("split_equal_parts_1d_opset18",),
        *("range_bfloat16_type_positive_delta", "resize_upsample_sizes_nearest_axes_2_3"),
        # Scales that give no whole size.
        *("resize_downsample_scales_linear", "resize_downsample_scales_nearest"),
        *("resize_downsample_sizes_nearest_not_smaller",),
        *("resize_upsample_scales_nearest", "constantofshape_float_ones", "expand_dim_changed"),
        # Definitions that depend on types, with an input left out in the middle.
        *("attention_4d_causal_with_past_and_present", "causal_conv_with_state_silu_with_past_state"),
        # Other domains, and quantised operators.
        *("flexattention", "nesterov_momentum", "adam_multiple", "adagrad"),
        *("ai_onnx_ml_tree_ensemble_set_membership", "ai_onnx_ml_tree_ensemble_single_tree"),
        *("ai_onnx_ml_array_feature_extractor", "qlinearmatmul_3D_uint8_float16", "qlinearconv"),
        *("quantizelinear_blocked_asymmetric", "dynamicquantizelinear_max_adjusted"),
        # What onnxruntime has not, or has otherwise.
        *("tensorscatter_circular", "dft_rfft"),
        *("batchnorm_example_training_mode", "bitcast_bool_to_uint8", "not_2d"),
        *("unique_sorted_with_axis_3d",),
        *("maxunpool_export_with_output_shape", "resize_tf_crop_and_resize_axes_3_2"),
        # Sequences and optional values.
        *("sequence_map_add_1_sequence_1_tensor", "loop11", "loop13_seq", "if_opt", "if_seq"),
        *("optional_has_element_empty_optional_input", "split_to_sequence_2", "identity_opt"),
        # What the suite has found.
        *("l2normalization_axis_0", "spacetodepth_crd_mode_example", "cumprod_1d"),
        *("layer_normalization_4d_axis1",),
        *("argmax_keepdims_example_select_last_index", "argmin_no_keepdims_example_select_last_index"),
        *("bitcast_float32_to_int32", "lppool_2d_pads", "lppool_2d_dilations", "scatter_with_axis"),
    ),
    # Files of opset 6.
    "PyTorchConverted": ("PReLU_1d_multiparam", "BatchNorm2d_eval", "Linear", "Softmax"),
    "PyTorchOperator": ("operator_add_broadcast", "operator_addmm", "operator_pow"),
    "Simple": ("sign_model", "single_relu_model"),
}  # fmt: skip


@together("kind", KINDS)
def test_a_share_of_the_suite_passes(kind: str) -> None:
    """One test: every process that reads the suite takes seconds for that. Of operators each second one."""
    check_share(kind, SHARE[kind][:: 2 if kind == "Node" else 1])


@pytest.mark.long
def test_the_whole_share_of_operators_passes() -> None:
    check_share("Node", SHARE["Node"])


def check_share(kind: str, names: Sequence[str]) -> None:
    """Hold that these cases of a part of the suite pass."""
    pattern = f"^test_({'|'.join(map(re.escape, names))})_cpu$"
    found = outcomes([kind], pattern, 0, 1)
    assert {one.name: one.why for one in found if one.verdict != "passed"} == {}
    assert len(found) == len(names)


@pytest.mark.long
def test_nothing_in_the_suite_is_wrong() -> None:
    found = outcomes(KINDS, "", 0, 1)
    assert [one.name for one in found if one.verdict in ("wrong", "broken")] == []
    passed = Counter(one.kind for one in found if one.verdict == "passed")
    assert passed["Node"] >= 1670
    assert (passed["PyTorchConverted"], passed["PyTorchOperator"]) == (82, 35)


def test_an_input_that_decides_a_shape_is_named_and_can_be_fixed(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    model = model_of([node], {"x": X, "axes": np.array([1])}, ["y"])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(Unsupported) as caught:
        import_model(path, tmp_path / "net.dlm")
    (told,) = caught.value.diagnostics
    assert "computed when the model runs from its input axes" in told.message
    assert "--fix axes=VALUE" in str(told.help)
    import_model(path, tmp_path / "net.dlm", fixed={"axes": "[1]"})
    assert "sum(x, axis=1" in (tmp_path / "net.dlm").read_text()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("axes", "[[1]]", "its fixed value has the shape [1, 1]"),
        ("axes", "[0.5]", "the dtype float64"),
        ("axes", "one", "is not a number"),
        ("gone", "[1]", "has no input gone"),
    ],
)
def test_a_fixed_value_must_fit(tmp_path: Path, name: str, value: str, said: str) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    model = model_of([node], {"x": X, "axes": np.array([1])}, ["y"])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError) as caught:
        import_model(path, tmp_path / "net.dlm", fixed={name: value})
    assert said in caught.value.diagnostics[0].message


def with_function(body: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model that calls a function of its own twice."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, opsets)
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="own"),
        helper.make_node("Twice", ["h"], ["y"], domain="own"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [3])], [value("y", TensorProto.FLOAT, [3])]
    )
    return helper.make_model(graph, opset_imports=opsets, functions=[function])


def test_functions_of_a_file_are_written_out() -> None:
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    graph = graph_of(with_function(body), "net.onnx", Path(), IMPORTERS)
    assert [node.kind for node in graph.nodes] == ["Add", "Add"]


def test_a_function_of_itself_is_refused() -> None:
    body = [helper.make_node("Twice", ["a"], ["b"], domain="own")]
    with pytest.raises(Unsupported, match="functions of its own"):
        graph_of(with_function(body), "net.onnx", Path(), IMPORTERS)
