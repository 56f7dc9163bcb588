"""Passes that lower the peak of memory before it is planned: rematerialization, reordering, subviews."""
