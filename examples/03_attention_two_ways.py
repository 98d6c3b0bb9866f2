"""One attention, two ways: the fused one for speed, the explicit one to see. Same weights, same numbers.

    python examples/01_reverse_digits.py      first: it trains the model that is looked at here
    python examples/03_attention_two_ways.py

To write digits backwards, each target position must look at the mirrored source position: the matrix shows it does.
"""

from pathlib import Path

import torch

import heedful

SHADES = " ░▒▓█"

translator = heedful.Translator.load(Path("runs/reverse-digits/model"), device="cpu", engine="torch")
model, tokenizer = translator.model, translator.tokenizer
assert isinstance(model, heedful.Transformer)

# The same logits, whichever way attention is computed. Gradients are on, as in training: without them, a CPU computes
# most lengths by the explicit way in any case, because the fused kernels' last bits would depend on the batch.
source = torch.tensor([tokenizer.encode_source("3 1 4 1 5 9")])
target_output = torch.tensor([tokenizer.encode_target("9 5 1 4 1 3")])
target_input = torch.cat([torch.tensor([[tokenizer.bos_id]]), target_output[:, :-1]], dim=1)
logits = {}
for way in ("fused", "explicit"):
    model.use_attention(way)
    logits[way] = model(source, target_input).detach()
difference = (logits["fused"] - logits["explicit"]).abs().max()
print(f"largest difference of the logits, fused and explicit: {difference:.1e}")
assert difference < 1e-4

# Cross-attention of a finished translation: one row a target token, one column a source token, rows sum to at most 1.
[translation] = translator.translate(["3 1 4 1 5 9"], align=True)
assert translation.attention is not None
print(f"\n{' '.join(translation.source_tokens)}  →  {translation.text}\n")
print("    " + "".join(f"{token.strip('▁'):>3}" for token in translation.source_tokens))
for token, weights in zip(translation.tokens, translation.attention, strict=True):
    shades = "".join(SHADES[min(4, int(weight * 5))] * 3 for weight in weights)
    numbers = " ".join(f"{weight:.2f}" for weight in weights)
    print(f"{token.strip('▁'):>3} {shades}   {numbers}")
