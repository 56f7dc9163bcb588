"""ONNX models become graph IR.

`model` a file, solved for the sizes of its inputs · `reading` protobuf, distrustfully, to `facts` ·
`importing` the graph, node by node · `node_context` what the importer of one operator is given ·
`symbolic` computations with sizes · `operators` the importers, a family a module · `microsoft` and `ml`
those of other domains.
"""

from dlc.importers.onnx.importing import OnnxModel
from dlc.importers.onnx.model import import_graph, read_onnx

__all__ = ["OnnxModel", "import_graph", "read_onnx"]
