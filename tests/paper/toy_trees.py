"""Trees of a small grammar of English, drawn at random; every sentence has one tree."""

from __future__ import annotations

import random

NOUNS, VERBS, ADJECTIVES = ("cat", "dog", "bird", "tree"), ("sees", "likes", "knows"), ("old", "small", "red")


def noun_phrase(chance: random.Random, depth: int) -> str:
    adjective = f"(JJ {chance.choice(ADJECTIVES)}) " if chance.random() < 0.4 else ""
    plain = f"(NP (DT the) {adjective}(NN {chance.choice(NOUNS)}))"
    if depth and chance.random() < 0.3:
        return f"(NP {plain} (PP (IN near) {noun_phrase(chance, depth - 1)}))"
    return plain


def sentence(chance: random.Random, depth: int = 1) -> str:
    subject = noun_phrase(chance, depth)
    if depth and chance.random() < 0.3:
        inner = sentence(chance, depth - 1)
        return f"(S {subject} (VP (VBZ says) (SBAR (IN that) {inner})))"
    if chance.random() < 0.3:
        return f"(S {subject} (VP (VBZ sleeps)))"
    return f"(S {subject} (VP (VBZ {chance.choice(VERBS)}) {noun_phrase(chance, depth)}))"


def toy_trees(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [f"(TOP {sentence(chance)[:-1]} (. .)))" for _ in range(count)]
