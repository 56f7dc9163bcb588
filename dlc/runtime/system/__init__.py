"""What the operating system gives: memory, files, and how much of them there is."""
