"""Strings to ids and back: reading corpora, looking them over, the tokenizer, and the splitter of long inputs."""
