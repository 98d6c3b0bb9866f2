"""The figures of the paper and common illustrations of it, drawn from values that the code computes."""
