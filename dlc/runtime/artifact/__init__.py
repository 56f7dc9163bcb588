"""The file of a compiled model: container, manifest, and the checks that it must pass."""
