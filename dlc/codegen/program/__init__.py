"""From a plan to the tables that the engine runs: steps, sizes, and the certificate of the plan."""
