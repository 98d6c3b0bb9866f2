"""Strings to ids and back: corpora and their filters, the tokenizer, sentence splitting, language identification."""
