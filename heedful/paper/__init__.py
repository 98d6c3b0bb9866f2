"""The paper's arguments as experiments that anyone can run."""
