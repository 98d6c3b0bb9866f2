#!/usr/bin/env bash
# The part of the corpora that en_zh.sh uses: bash recipes/bundled-model/cut_corpora.sh data cut
# Of a large corpus every n-th line is kept. data: plain or .xz; cut: .xz. TOY=20 keeps twenty lines of each file.
set -euo pipefail
data=$1 cut=$2
lines() { if [ -e "$data/$1" ]; then cat "$data/$1"; else xzcat "$data/$1.xz"; fi; }
keep() { # keep FILE EVERY
  mkdir -p "$cut/$(dirname "$1")"
  if [ ! -e "$cut/$1.xz" ]; then
    lines "$1" | awk -v every="$2" 'NR % every == 0' | sed -n "1,${TOY:-\$}p" | xz -6 > "$cut/$1.xz.new"
    mv "$cut/$1.xz.new" "$cut/$1.xz"
  fi
}
pair() { for l in en zh; do keep "$1-en-zh/train.$l" "$2"; done; }
for c in msdocs docs dynamics; do pair $c 2; done
for c in tatoeba 3am mlqe-pe techdocs phpdoc chromium-l10n; do pair $c 1; done
keep mono-zh/tatoeba-zh.txt 1
keep mono-zh/laws-zh.txt 2
keep europarl-en-de/train.en 6
keep tatoeba-en-de/train.en 1
keep mlqe-pe-en-de/train.en 1
# For validation, and tests whose sentences must not be trained on.
for l in en zh; do
  for c in tatoeba mlqe-pe msdocs; do for t in valid test; do keep "$c-en-zh/$t.$l" 1; done; done
  keep "newstest/flores200-devtest.$l" 1
  keep "newstest/newstest2017.zh-en.$l" 1
done
