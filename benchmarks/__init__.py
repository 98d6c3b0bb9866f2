"""Benchmarks, by what they measure: speed, quality, invariance, robustness. Not part of the installed package."""
