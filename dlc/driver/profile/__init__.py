"""`dlc profile`: a profile `measured`, as `data`, `compare` of two, as a `flame` graph, as `events`."""
