"""The zoo: networks of every common family as their exporters write them, and what dlc makes of each."""
