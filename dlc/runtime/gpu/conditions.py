"""The kernels that set the conditions of conditional graph nodes, for loops and branches on the device.

The body of a conditional node runs if its *condition* is true, or as long as it is. A kernel sets it by
the device function `cudaGraphSetConditional`, which the driver links when it loads the module (CUDA 12.3
and newer; loops since 12.4). Older drivers refuse to load it, so these kernels are a PTX module of their
own, loaded for the first graph that has a condition.

`branch(condition, place, wanted)` sets the condition to whether the byte at the address `place` is
`wanted`, 0 or 1.

`round(condition, stop, place, cell, limit, op, notes, rows)` sets the condition to whether a loop runs
another round. It counts the rounds in `cell`, which is 0 whenever the loop is not running. The row behind
the `rows` of the kernels' faults (`EndWord`) says why the call has ended, if it has: the host asked for it
in the word `stop`, or a loop ran past its limit. From then on no loop runs another round, so the graph
ends. Branches are still taken, since later kernels may read what they compute.
"""

from __future__ import annotations

from dlc.runtime.abi import Status
from dlc.runtime.cuda.driver import ConditionKernels, Driver, Kernel
from dlc.runtime.gpu.steps import FAULT_BYTES, EndWord


def condition_kernels_of(driver: Driver) -> ConditionKernels:
    """These kernels, loaded once for a driver. Raises CallError (D0818) if it has no conditional nodes."""
    if driver.condition_kernels is None:
        module = driver.load_module(PTX.encode() + b"\0")
        driver.condition_kernels = ConditionKernels(
            *[Kernel(driver.get_function(module, name), 1) for name in ConditionKernels._fields]
        )
    return driver.condition_kernels


PTX = f"""\
.version 7.0
.target sm_80
.address_size 64

.extern .func cudaGraphSetConditional (.param .b64 condition, .param .b32 value);

.visible .entry branch (.param .u64 condition, .param .u64 place, .param .u64 wanted)
.maxntid 1
{{
  .reg .b64 %condition, %place, %byte, %wanted;
  .reg .b32 %value;
  .reg .pred %is;
  .param .b64 first;
  .param .b32 second;

  ld.param.u64 %condition, [condition];
  ld.param.u64 %place, [place];
  ld.param.u64 %wanted, [wanted];
  ld.u8 %byte, [%place];
  min.u64 %byte, %byte, 1;
  setp.eq.u64 %is, %byte, %wanted;
  selp.u32 %value, 1, 0, %is;
  st.param.b64 [first], %condition;
  st.param.b32 [second], %value;
  call cudaGraphSetConditional, (first, second);
  ret;
}}

.visible .entry round (
  .param .u64 condition, .param .u64 stop, .param .u64 place, .param .u64 cell,
  .param .u64 limit, .param .u64 op, .param .u64 notes, .param .u64 rows)
.maxntid 1
{{
  .reg .b64 %condition, %stop, %place, %cell, %limit, %op, %notes, %rows;
  .reg .b64 %end, %status, %byte, %rounds, %row, %at, %earlier;
  .reg .b32 %value, %asked;
  .reg .pred %is;
  .param .b64 first;
  .param .b32 second;

  ld.param.u64 %condition, [condition];
  ld.param.u64 %stop, [stop];
  ld.param.u64 %place, [place];
  ld.param.u64 %cell, [cell];
  ld.param.u64 %limit, [limit];
  ld.param.u64 %op, [op];
  ld.param.u64 %notes, [notes];
  ld.param.u64 %rows, [rows];
  mad.lo.u64 %end, %rows, {FAULT_BYTES}, %notes;
  ld.u64 %status, [%end];
  setp.ne.u64 %is, %status, 0;
  @%is bra leave;
  ld.u8 %byte, [%place];
  setp.eq.u64 %is, %byte, 0;
  @%is bra leave;

  mov.u64 %status, {Status.CANCELLED:d};
  ld.volatile.u32 %asked, [%stop];
  setp.ne.u32 %is, %asked, 0;
  @%is bra ended;
  ld.u64 %rounds, [%cell];
  setp.lt.s64 %is, %rounds, %limit;
  @%is bra again;
  mov.u64 %status, {Status.LIMIT:d};

  // What a kernel has noted by now comes before that, what one notes later does not.
ended:
  mov.u64 %row, 0;
  mov.u64 %earlier, 0;
look:
  setp.ge.s64 %is, %row, %rows;
  @%is bra note;
  mad.lo.u64 %at, %row, {FAULT_BYTES}, %notes;
  add.u64 %row, %row, 1;
  ld.u64 %byte, [%at];
  setp.eq.u64 %is, %byte, 0;
  @%is bra look;
  mov.u64 %earlier, %row;
note:
  st.u64 [%end + {8 * EndWord.STATUS}], %status;
  st.u64 [%end + {8 * EndWord.EARLIER}], %earlier;
  st.u64 [%end + {8 * EndWord.LIMIT}], %limit;
  st.u64 [%end + {8 * EndWord.OP}], %op;

leave:
  mov.u64 %rounds, 0;
  mov.u32 %value, 0;
  bra set;
again:
  add.u64 %rounds, %rounds, 1;
  mov.u32 %value, 1;
set:
  st.u64 [%cell], %rounds;
  st.param.b64 [first], %condition;
  st.param.b32 [second], %value;
  call cudaGraphSetConditional, (first, second);
  ret;
}}
"""
