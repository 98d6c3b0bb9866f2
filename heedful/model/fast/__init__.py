"""The same model with fewer and fatter operations, for training on a GPU; tested equal to the readable one."""
