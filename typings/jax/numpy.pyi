import numpy as np
from jax import Array

def asarray(value: object) -> Array: ...

bfloat16: np.dtype[np.generic]
