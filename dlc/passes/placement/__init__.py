"""Where buffers lie in one arena: intervals of time with sizes go in, offsets come out.

Nothing here knows of the IR. `buffers` says what is given and what a right answer is.
"""
