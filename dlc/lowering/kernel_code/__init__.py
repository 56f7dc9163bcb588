"""Writing the code of a kernel, whatever device it is for: bodies, registers, epilogues, sizes."""
