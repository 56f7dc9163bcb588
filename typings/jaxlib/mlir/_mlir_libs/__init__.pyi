from jaxlib.mlir._mlir_libs import _jax_mlir_ext as _jax_mlir_ext
from jaxlib.mlir._mlir_libs import _stablehlo as _stablehlo
