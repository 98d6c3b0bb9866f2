"""The whole path: two text files, a model, a translation. The task is to reverse a row of digits.

    python examples/01_reverse_digits.py

Takes a few seconds on a CPU and saves the model in runs/reverse-digits, which example 03 uses.
"""

import random
from pathlib import Path

import heedful

random.seed(1)
folder = Path("runs/reverse-digits")
folder.mkdir(parents=True, exist_ok=True)

# Parallel text: line n of the target is the translation of line n of the source.
rows = [[str(random.randrange(10)) for _ in range(random.randint(2, 6))] for _ in range(4000)]
(folder / "digits.forward").write_text("".join(" ".join(row) + "\n" for row in rows))
(folder / "digits.backward").write_text("".join(" ".join(reversed(row)) + "\n" for row in rows))

# A request has only the settings that differ from the preset and the defaults.
result = heedful.train(
    {
        "preset": "tiny",
        "output": str(folder / "model"),
        "data": {
            "train": [{"source": str(folder / "digits.forward"), "target": str(folder / "digits.backward")}],
            "drop_identical": False,  # 7 7 reversed is 7 7
            "row_width": 32,
        },
        "tokenizer": {"byte_fallback": False},  # all input consists of ten digits
        "model": {"d_model": 64, "d_ff": 128, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0},
        "training": {
            "steps": 300,
            "validate_every": 50,
            "tokens_per_step": 1024,
            "learning_rate": 5e-3,
            "label_smoothing": 0.0,
            "device": "cpu",
        },
    },
    overwrite=True,
)
print(f"{result.steps} steps, valid loss {result.valid_loss:.3f}")

translator = heedful.Translator.load(folder / "model", device="cpu")
rows = [[str(random.randrange(10)) for _ in range(random.randint(2, 6))] for _ in range(200)]
translations = translator.translate([" ".join(row) for row in rows])
for row, translation in list(zip(rows, translations, strict=True))[:3]:
    print(f"{' '.join(row)}  →  {translation.text}")
right = sum(translation.text == " ".join(reversed(row)) for row, translation in zip(rows, translations, strict=True))
print(f"{right} of {len(rows)} rows right")
