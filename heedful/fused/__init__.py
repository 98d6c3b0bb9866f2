"""Fast paths of the Transformer, each tested equal to `heedful.model`: training on GPU and CPU, and their kernels."""
