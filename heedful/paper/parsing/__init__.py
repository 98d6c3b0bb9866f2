"""Parsing as text to text: sentences in, constituency trees out (section 6.3 of the paper)."""
