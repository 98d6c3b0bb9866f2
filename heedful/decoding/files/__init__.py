"""A whole file, however long, line by line through a model: on all cores or GPUs, resumable, in shards.

FILE -> portions -> workers -> partial output and its record -> OUTPUT, or a shard of it -> merged shards
"""
