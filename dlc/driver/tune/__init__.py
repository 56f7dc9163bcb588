"""`dlc tune`: what work costs on this machine, measured with a model of one kernel for each row."""
