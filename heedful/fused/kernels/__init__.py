"""Triton kernels for operations that torch.compile runs slowly; tests compare each with a reference."""
