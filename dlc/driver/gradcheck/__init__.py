"""Comparing derivatives with finite differences."""
