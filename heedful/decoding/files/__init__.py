"""Translating whole files of any length: on all cores or GPUs, resumable after an interruption, optionally in shards.

input file -> line chunks -> workers -> partial output and its manifest -> output, or shards of it -> merged output
"""
