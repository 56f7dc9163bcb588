"""Compiling a model: what is asked for, the pipelines of passes, machine code, the artifact."""
