"""Costs of work on a GPU: of one thread or block where kernels are cut, of all of it where `auto` weighs.

Rates of memory are of data sheets, and about 60 % of what they promise. `python -m benchmarks costs`
measures what this machine has.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.target.table import ElementCosts, cost


@dataclass(frozen=True, slots=True)
class GpuCosts(ElementCosts):
    """Costs of a GPU; of one block, if nothing else is said."""

    launch: int = cost(4_000_000, "ps", "a launch, until the next kernel may begin")
    transfer: int = cost(10_000_000, "ps", "a transfer of nothing between host and device")
    transfer_byte: int = cost(83, "ps/byte", "a byte of it: 12 GB in a second")
    memory_byte: float = cost(0.7, "ps/byte", "a byte of the device's memory, all of the GPU")
    cpu_threads: int = cost(120, "threads", "threads of a processor that do as much arithmetic")
    matrix_product: int = cost(1, "ps", "a product by matrix instructions")
    product: int = cost(5, "ps", "a product by fma")
    small_product: int = cost(20, "ps", "a product of a small matrix")
    vector_product: int = cost(2, "ps", "a product of a matrix and a vector")
    depthwise_product: int = cost(60, "ps", "a product of a depthwise convolution")
    matrix_attention: int = cost(1, "ps", "a product of attention by matrix instructions")
    attention: int = cost(20, "ps", "a product of attention by fma")
    attention_gradient: int = cost(2, "ps", "a product of the gradient of attention by fma")
    copied_element: int = cost(500, "ps/element", "copying an element of a concatenation or update")
    scattered_element: int = cost(1000, "ps/element", "copying or updating by an index")
    scanned_element: int = cost(1500, "ps/element", "a prefix scan")
    sorted_element: int = cost(500, "ps/element", "a round of a sort")
    nonzero_element: int = cost(20, "ps/element", "finding the elements that are not 0")


USUAL_COSTS = GpuCosts()
"""Those of an A100."""
