"""The rows of the pipelines: which passes run, at which levels, for which devices."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dlc.driver.compile.pipelines import PIPELINE, Device, pipeline
from dlc.driver.compile.run_passes import optimise_text
from dlc.ir.passes import PASSES
from dlc.passes.kernel.multi_output_fusion import fuse_outputs

DEVICES = [Device.CPU, Device.CUDA, Device.HETERO]

CHAIN = """"builtin.module"() ({
  "func.func"() <{sym_name = "f", function_type = (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>}> ({
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %0 = "array.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "array.add"(%0, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%1) : (tensor<4xf32>) -> ()
  }) {dlc.inputs = ["x", "y"]} : () -> ()
}) : () -> ()
"""


def test_every_pass_of_the_compiler_is_in_a_pipeline() -> None:
    named = {step.run.name for steps in PIPELINE.values() for step in steps}
    defined = {name for name, each in PASSES.items() if each.function.__module__[:4] == "dlc."}
    assert defined == named


@pytest.mark.parametrize("device", DEVICES)
def test_a_higher_level_runs_all_required_passes_of_a_lower_one(device: Device) -> None:
    levels = [pipeline("graph", "loop", level, device) for level in range(4)]
    required = [[each for each in passes if each.required] for passes in levels]
    for lower, higher in pairwise(required):
        assert set(lower) <= set(higher)


def test_beside_a_processor_passes_of_a_gpu_leave_its_kernels_alone() -> None:
    assert fuse_outputs in pipeline("graph", "kernel", 2, Device.CUDA)
    assert fuse_outputs.using(gpu_only=True) in pipeline("graph", "kernel", 2, Device.HETERO)
    assert "fuse_outputs" not in [each.name for each in pipeline("graph", "kernel", 2)]


@pytest.mark.parametrize(("most", "kernels"), [(1, 2), (2, 1)])
def test_fuse_makes_kernels_that_read_as_many_arrays_as_its_option_says(
    most: int, kernels: int
) -> None:
    text = optimise_text(
        CHAIN, f"lower_to_kernels,fuse{{max_inputs={most}}},dce", file="chain.dlir"
    )
    assert text.count('"kernel.generic"') == kernels
