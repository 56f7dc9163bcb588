"""How much kernels compute and move at least, and the roof that follows."""

from __future__ import annotations

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_here
from dlc.runtime.artifact.kernel_records import KernelRecord, kernels_section, read_kernel_records
from dlc.target.cpu import CpuTarget
from dlc.target.roof import levels, operation_femtoseconds


def records_of(text: str) -> tuple[KernelRecord, ...]:
    request = CompileRequest("m.dlm", text=f"dlc 1\n{text}", settings=Settings(target="cpu"))
    section = make_here(request).artifact.section(kernels_section("cpu", "f"))
    return read_kernel_records(bytes(section)).kernels


def test_a_sum_is_an_operation_for_each_element() -> None:
    (found,) = records_of("export fn f(x: f32[6, 40]) -> f32[6] = sum(x, axis=1)\n")
    assert (found.operations, found.bytes) == ("240", str(4 * (240 + 6)))


def test_a_causal_attention_multiplies_only_what_is_seen() -> None:
    head = "export fn f(q: f32[64, 16], k: f32[64, 16], v: f32[64, 16]) -> f32[64, 16] = "
    whole, seen = (
        int(records_of(f"{head}attention(q, k, v{more})\n")[-1].operations)
        for more in ("", ", causal=true")
    )
    assert whole % (64 * 64) == 0
    assert seen * 64 * 64 == whole * (64 * 65 // 2)


def test_an_update_in_place_moves_what_it_writes() -> None:
    text = (
        "export fn f(inout s: f32[1000, 8], r: f32[8], i: i64) -> f32[8] {\n"
        "  set s = update(s, at=[i, ..], r)\n  return r + 1\n}\n"
    )
    assert all(int(each.bytes) < 1000 * 8 * 4 for each in records_of(text))


def test_the_roof_of_a_wider_processor_is_lower_and_each_level_is_slower_than_the_one_before() -> (
    None
):
    narrow, wide = (CpuTarget.named(name) for name in ("x86-64-v3", "x86-64-v4"))
    assert operation_femtoseconds(narrow) == 2 * operation_femtoseconds(wide) + 1
    found = levels(wide)
    assert [cost for _, cost in found] == sorted(cost for _, cost in found)
    assert found[-1][0] == 0
