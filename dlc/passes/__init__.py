"""Passes that stay at one level: each takes a module and leaves a better one of the same meaning."""
