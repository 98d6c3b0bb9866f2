"""Train a model for a task other than translation: convert dates to one format. Any text-to-text task works.

    python examples/02_own_model.py

Shows a TSV corpus, a test set that is scored at the end, and n-best lists with scores.
"""

import datetime
import random
from pathlib import Path

import heedful

random.seed(1)
folder = Path("runs/dates")
folder.mkdir(parents=True, exist_ok=True)


def spoken(day: datetime.date) -> str:
    """A date in a random format."""
    month = day.strftime(random.choice(["%B", "%b"]))
    return random.choice([f"{month} {day.day}, {day.year}", f"{day.day} {month} {day.year}", f"{day:%d.%m.%Y}"])


def write_pairs(path: Path, days: list[datetime.date]) -> None:
    """Write one pair per line, separated by a tab."""
    path.write_text("".join(f"{spoken(day)}\t{' '.join(day.isoformat())}\n" for day in days))


start = datetime.date(1950, 1, 1)
days = random.sample([start + datetime.timedelta(days=number) for number in range(36_500)], 4200)
write_pairs(folder / "train.tsv", days[200:])
write_pairs(folder / "test.tsv", days[:200])

result = heedful.train(
    {
        "preset": "tiny",
        "output": str(folder / "model"),
        "data": {"train": [{"path": str(folder / "train.tsv")}], "test": [{"path": str(folder / "test.tsv")}]},
        "tokenizer": {"vocab_size": 340},  # few enough that digits are separate and months whole
        "model": {"d_model": 64, "d_ff": 256, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0},
        "training": {
            "steps": 200,
            "validate_every": 100,
            "tokens_per_step": 1024,
            "learning_rate": 5e-3,
            "device": "cpu",
        },
    },
    overwrite=True,
)
for score in result.scores:
    print(score)

translator = heedful.Translator.load(folder / "model", device="cpu")
[translation] = translator.translate(["July 14, 1989"], num_best=3)
for answer in translation.n_best:
    print(f"{answer.score:8.3f}  {answer.text.replace(' ', '')}")
