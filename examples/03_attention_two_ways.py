"""Compare the two implementations of attention: fused for speed, explicit to inspect. They give the same numbers.

    python examples/01_reverse_digits.py      first: trains the model used here
    python examples/03_attention_two_ways.py

To reverse digits, each target position must attend to the mirrored source position, as the matrix shows.
"""

from pathlib import Path

import torch

import heedful

SHADES = " ░▒▓█"

translator = heedful.Translator.load(Path("runs/reverse-digits/model"), device="cpu", engine="torch")
model, tokenizer = translator.model, translator.tokenizer
assert isinstance(model, heedful.Transformer)

# Both implementations give the same logits. Gradients are enabled, as in training: without them, a CPU uses the
# explicit implementation for most lengths, because the last bits of the fused kernels depend on the batch.
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

# Cross-attention of a translation: one row per target token, one column per source token; rows sum to at most 1.
[translation] = translator.translate(["3 1 4 1 5 9"], align=True)
assert translation.attention is not None
print(f"\n{' '.join(translation.source_tokens)}  →  {translation.text}\n")
print("    " + "".join(f"{token.strip('▁'):>3}" for token in translation.source_tokens))
for token, weights in zip(translation.tokens, translation.attention, strict=True):
    shades = "".join(SHADES[min(4, int(weight * 5))] * 3 for weight in weights)
    numbers = " ".join(f"{weight:.2f}" for weight in weights)
    print(f"{token.strip('▁'):>3} {shades}   {numbers}")
