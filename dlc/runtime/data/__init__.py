"""Training examples: read from files or given as arrays, checked, split, shuffled, divided into batches.

`open_data` checks everything before work begins: that files and names exist, that shapes agree with the
inputs of the loss, and that conversions are exact. The order of an epoch depends on the seed and the
number of the epoch alone, so training can resume at any position with the same batches.

>>> from dlc.runtime.artifact.manifest import Input
>>> from dlc.runtime.data import open_data
>>> import numpy as np
>>> wanted = [Input("x", "f32", ("B", "2")), Input("y", "i32", ("B",))]
>>> arrays = {"x": np.ones((5, 2), np.float32), "y": np.arange(5)}
>>> data = open_data(None, wanted, override=arrays)
>>> [batch["y"].tolist() for batch in data.batches(epoch=0, batch=2, seed=1)]
[[0, 3], [4, 2], [1]]
"""

from dlc.runtime.artifact.manifest import DataSource
from dlc.runtime.data.dataset import Batch, Dataset
from dlc.runtime.data.opening import open_data
from dlc.runtime.data.source import Setting, source_of

__all__ = ["Batch", "DataSource", "Dataset", "Setting", "open_data", "source_of"]
