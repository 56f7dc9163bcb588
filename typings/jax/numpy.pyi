from jax import Array
import numpy as np

def asarray(value: object) -> Array: ...

bfloat16: np.dtype[np.generic]
