"""The command line, one file for each verb; the work is done in `dlc.driver` and `dlc.runtime`."""
