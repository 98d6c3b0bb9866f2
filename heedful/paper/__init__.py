"""The tables and figures of the paper as experiments, and the comparison of systems."""
