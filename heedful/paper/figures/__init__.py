"""The figures that readers of the paper know, drawn from what our own code computes."""
