"""The core of elaboration: values, names in scope, types, calls, and where operations are put."""
