"""How well compiled ONNX networks agree with onnxruntime.

    python -m benchmarks.onnx_agreement

One line for each network and way to compute products: the largest error relative to the largest result,
whether the best class is the same, whether one thread and two give the same bits, and the seconds for
compiling. The light graphs have seeded weights; DLC_ONNX_MODELS names a folder with further networks.
Ends with 3 if a network does not agree.
"""

from __future__ import annotations

import sys

from tests.importers.onnx.agreement import TOLERANCE, all_agreements

NUMBERS_DIFFER = 3


def main() -> int:
    """Print the table; gives the exit code."""
    print(f"{'network':36} {'products':10} {'error':>9} {'top 1':>6} {'bits':>6} {'compile s':>10}")
    wrong = 0
    for network, matmul, found in all_agreements():
        top = "same" if found.same_top else "OTHER"
        bits = "same" if found.same_bits else "OTHER"
        print(
            f"{network.name:36} {matmul:10} {found.error:9.1e} {top:>6} {bits:>6} {found.seconds:10.2f}",
            flush=True,
        )
        wrong += not found.holds
    print(f"{wrong} of them differ by more than {TOLERANCE:g}, in the class or in the bits")
    return NUMBERS_DIFFER if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
