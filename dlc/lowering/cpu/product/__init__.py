"""Matrix products on a processor: by BLAS, or generated with packed panels and register tiles."""
