"""`dlc diff`: where the numbers of a model depart, from level to level or from those of another program."""
