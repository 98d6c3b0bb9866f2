"""Ids to batches: the store of tokenised pairs, packing into rows, and the stream of batches with an exact position."""
