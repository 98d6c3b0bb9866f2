"""Write the generated sections of docs/classical-zh.md (classical to modern Chinese) and of the Chinese page.

    python .ci/classical_page.py                      # write both
    python .ci/classical_page.py docs/classical-zh.md # print one of them

The prose is written by hand; the text between `<!-- made: NAME -->` and `<!-- end -->` is generated from the newest
benchmarks/results/classical_DATE_cpu.json (benchmarks/common/generated_pages.py), and is empty before there is one.
A test compares both pages.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import benchmarks.quality.classical_chinese_tables as tables  # noqa: E402
from benchmarks.common.generated_pages import fill, machine, newest_figures, source  # noqa: E402
from benchmarks.common.result_tables import engines, signatures  # noqa: E402
from benchmarks.quality.classical_chinese import FAMOUS  # noqa: E402

PAGES = {"en": ROOT / "docs" / "classical-zh.md", "zh": ROOT / "docs" / "classical-zh.zh-CN.md"}
Results = dict[str, Any]


def sections(path: Path, results: Results, lang: str) -> dict[str, str]:
    """All sections generated from these results."""
    made = {"facts": tables.facts(results, lang)}
    if results["scores"]:
        parts = [tables.scores(results, lang), signatures(results, lang), engines(results, lang), source(path, lang)]
        made["scores"] = "\n\n".join(parts)
    if "lengths" in results:
        made["lengths"] = tables.lengths(results, lang)
    if "speed" in results:
        made["speed"] = f"{tables.speeds(results, lang)}\n\n{machine(results, lang)}"
    if "samples" in results:
        made["lines"] = tables.test_lines(results, lang)
        made["famous"] = f"{tables.famous(results, lang)}\n\n{tables.not_seen(results, lang)}"
    return made


def use() -> str:
    """The command for one sentence, with Chinese text on both pages."""
    return f'```bash\nheedful translate -m classical-zh "{FAMOUS[0].text}"\n```'


def filled(lang: str) -> str:
    """A page with regenerated sections."""
    found = newest_figures("classical")
    made = {"use": use(), **(sections(*found, lang) if found else {})}
    return fill(PAGES[lang].read_text(encoding="utf-8"), made)


def main() -> None:
    """Print the requested page, or write both."""
    if len(sys.argv) > 1:
        asked = (ROOT / sys.argv[1]).resolve()
        lang = next((lang for lang, page in PAGES.items() if page.resolve() == asked), None)
        sys.exit(f"{sys.argv[1]}: not a page that is made here") if lang is None else sys.stdout.write(filled(lang))
        return
    for lang, page in PAGES.items():
        page.write_text(filled(lang), encoding="utf-8")


if __name__ == "__main__":
    main()
