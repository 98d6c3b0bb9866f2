"""Triton kernels for operations that torch.compile makes slow; tests compare each with the plain code it replaces."""
