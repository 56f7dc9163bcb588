"""Texts and what their names mean: files, imports, settings, limits."""
