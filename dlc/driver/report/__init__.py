"""Reports about a model: its IR at each level, decisions, pictures, timings."""
