"""Search on GPUs with a decoding step captured as a CUDA graph; sentences occupy slots."""
