"""The ranks of a mesh: the processes, or threads in their place, that run one program together."""
