"""Examples of every operation; importing this package fills `example.EXAMPLES`."""

from tests.op_examples import elementwise as elementwise
from tests.op_examples import index as index
from tests.op_examples import linear as linear
from tests.op_examples import networks as networks
from tests.op_examples import random as random
from tests.op_examples import reduce as reduce
from tests.op_examples import shape as shape

# Imported under another name, all examples would be there twice.
assert __name__ == "tests.op_examples"
