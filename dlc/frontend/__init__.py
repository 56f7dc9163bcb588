"""Model text becomes graph IR: modules are elaborated, names resolved, types and sizes checked."""
