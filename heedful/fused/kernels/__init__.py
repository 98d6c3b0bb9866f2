"""Kernels of our own for GPUs, where the compiler's are slow; each is tested equal to the plain code it replaces."""
