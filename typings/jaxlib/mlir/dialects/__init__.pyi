from jaxlib.mlir.dialects import chlo as chlo
from jaxlib.mlir.dialects import mhlo as mhlo
from jaxlib.mlir.dialects import sdy as sdy
from jaxlib.mlir.dialects import stablehlo as stablehlo
