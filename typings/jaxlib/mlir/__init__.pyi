from jaxlib.mlir import ir as ir
from jaxlib.mlir import passmanager as passmanager
