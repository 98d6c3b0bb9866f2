"""What runs a model while it translates: one small interface, `Engine`, and those that have it."""
