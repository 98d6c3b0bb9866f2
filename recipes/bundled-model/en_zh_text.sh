#!/usr/bin/env bash
# Text that en_zh.sh needs beforehand: bash recipes/bundled-model/en_zh_text.sh DATA CUT DICTIONARY OUT
# DATA: the corpora; CUT: written by cut_corpora.sh; DICTIONARY: jieba's dict.txt. Written to OUT: chinese.txt, whose
# pieces the teacher keeps; vocabulary.en and vocabulary.zh, of which the vocabulary is learned; round-1.en and
# round-3.en, which the model translates into Chinese.
set -euo pipefail
data=$1 cut=$2 dictionary=$3 out=$4 here=$(dirname "$0") python=${PYTHON:-python3}
mkdir -p "$out"
lines() { if [ -e "$data/$1" ]; then cat "$data/$1"; else xzcat "$data/$1.xz"; fi; }
every() { lines "$1" | awk -v n="$2" 'NR % n == 0'; }
corpora=(tatoeba 3am mlqe-pe msdocs docs dynamics techdocs phpdoc chromium-l10n)
{
  for c in "${corpora[@]}"; do lines "$c-en-zh/train.zh"; done
  lines mono-zh/laws-zh.txt
  lines mono-zh/tatoeba-zh.txt
  cut -d' ' -f1 "$dictionary" | grep -v '[ -~]'
} > "$out/chinese.txt"
lines mlqe-pe-en-zh/train.zh > "$out/encyclopedia.zh"
$python "$here/replace_words.py" "$dictionary" 100000 "$out/replaced.zh" "$out/encyclopedia.zh"
{
  lines mono-zh/tatoeba-zh.txt
  cat "$out/encyclopedia.zh" "$out/replaced.zh"
  every mono-zh/laws-zh.txt 8
  lines tatoeba-en-zh/train.zh
  for pair in 3am:2 msdocs:15 docs:6 techdocs:4 dynamics:10; do every "${pair%:*}-en-zh/train.zh" "${pair#*:}"; done
} > "$out/vocabulary.zh"
{
  every europarl-en-de/train.en 8
  every tatoeba-en-de/train.en 2
  for c in zh de; do lines "mlqe-pe-en-$c/train.en"; done
  for pair in 3am:2 msdocs:15 docs:6 techdocs:4 dynamics:10; do every "${pair%:*}-en-zh/train.en" "${pair#*:}"; done
  cut -f1 "$here/places.tsv"
} > "$out/vocabulary.en"
xzcat "$cut/europarl-en-de/train.en.xz" | awk 'NR % 5 == 0 && length($0) < 260' > "$out/parliament.en"
$python "$here/select_translations.py" plain "$out/parliament.en" "$out/round-1.en"
xzcat "$cut/mlqe-pe-en-de/train.en.xz" > "$out/round-3.en"
