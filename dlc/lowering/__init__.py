"""Passes from one level to the next: graph, kernel, plan, loop, LLVM text; each names its pair."""
