"""Search on the device without waiting for the host: sentences in slots, a step recorded as one CUDA graph."""
