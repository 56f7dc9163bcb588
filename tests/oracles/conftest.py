"""The scripts here need packages that only the oracles' environments have."""

collect_ignore = ["mlir_read.py", "xdsl_read.py"]
