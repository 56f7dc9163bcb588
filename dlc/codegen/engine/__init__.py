"""The engine, native code that runs the step tables of programs with a pool of threads."""
