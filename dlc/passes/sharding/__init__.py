"""Sharding: one program on one machine becomes one program on each rank of a mesh (SPMD partitioning).

`infer_splits`: the splits that the text leaves open · `placement`: where the elements of a value are ·
`rules`: which axes of operands and results an operation computes together · `costs` · `assign`: the
placement of every value · `reshard`: from one placement to another · `partition`: the pass. (Compare
Xu et al., "GSPMD", 2021, and OpenXLA's Shardy.)
"""
