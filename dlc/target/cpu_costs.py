"""Costs of work on a processor.

Tile sizes, the sharing of waves and what is computed again are decided by these numbers, and nothing is
timed to decide. `python -m benchmarks costs` measures them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.target.table import ElementCosts, cost


@dataclass(frozen=True, slots=True)
class CpuCosts(ElementCosts):
    """Costs of one thread of a processor, as measured on AVX2 and AVX-512 servers at about 3 GHz."""

    product: int = cost(12, "ps", "a multiplication and addition of a generated product")
    blas_product: int = cost(20, "ps", "a multiplication and addition by BLAS")
    blas_element: int = cost(500, "ps/element", "an element of a result of BLAS, on top of that")
    attention_product: int = cost(14, "ps", "a multiplication and addition of attention")
    attention_exp: int = cost(2000, "ps/register", "scores to exp(scores - max)")
    depthwise_product: int = cost(36, "ps", "a product of a depthwise convolution, with its load")
    winograd_element: int = cost(100, "ps/element", "a channel of a Winograd place, both ways")
    copied_byte: int = cost(80, "ps/byte", "reading and writing a byte of a concatenation")
    updated_element: int = cost(100, "ps/element", "copying an element of an update")
    scattered_element: int = cost(1000, "ps/element", "copying or updating by an index")
    scanned_element: int = cost(1500, "ps/element", "a prefix scan: each waits for the one before")
    sorted_element: int = cost(700, "ps/element", "a pass of a radix sort")
    nonzero_element: int = cost(1000, "ps/element", "finding the elements that are not 0")
    kernel_product: int = cost(20, "ps", "a product of a whole kernel, packing and edges included")
    kernel_depthwise: int = cost(36, "ps", "a product of a whole depthwise convolution")
    kernel_winograd: int = cost(
        100, "ps/element", "a channel of a Winograd place in a whole kernel, both ways"
    )
    kernel_operation: int = cost(30, "ps", "an operation on an element, in a whole kernel")
    kernel_step: int = cost(80, "ps", "an element of a sum that neighbours take beside each other")
    strided_element: int = cost(250, "ps/element", "an element far from the one that is next to it")
    kernel_start: int = cost(50_000, "ps", "beginning and ending a kernel")
    near_byte: int = cost(9, "ps/byte", "a byte from or to a near cache, in a whole kernel")
    near_bytes: int = cost(1 << 20, "bytes", "what near caches hold of a kernel's arrays")
    cached_byte: int = cost(12, "ps/byte", "a byte from or to any cache, in a whole kernel")
    cached_bytes: int = cost(32 << 20, "bytes", "what all caches hold of a kernel's arrays")
    uncached_byte: int = cost(60, "ps/byte", "a byte from or to memory, in a whole kernel")
    memory_byte: int = cost(60, "ps/byte", "a byte from or to memory between other work")
    other_element: int = cost(2000, "ps/element", "a result of any other kernel")
    barrier: int = cost(
        4_000_000, "ps", "a barrier, twice what it takes where threads wait for each other"
    )
    tile: int = cost(4_000_000, "ps", "work of one tile: long against a barrier, short for a call")


USUAL_COSTS = CpuCosts()
"""Those of x86-64 processors. What decides how work is shared is the same for all of them."""
AVX512_COSTS = replace(
    USUAL_COSTS,
    kernel_product=8,
    kernel_depthwise=9,
    kernel_winograd=84,
    kernel_operation=13,
    kernel_step=1,
    kernel_start=680_000,
    strided_element=175,
    near_byte=6,
    cached_byte=9,
    uncached_byte=25,
)
"""Those with registers of 64 bytes: `python -m benchmarks cost_fit` on a processor of the Zen 5 kind."""
