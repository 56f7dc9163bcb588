# What dlc uses of jaxlib, which the gate runs without.
