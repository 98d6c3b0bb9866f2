#!/usr/bin/env bash
# The part of the corpora that stage 5 uses: bash recipes/bundled-model/cut_corpora.sh data cut
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
pair() { for l in en "$2"; do keep "$1-en-$2/train.$l" "$3"; done; }
pair europarl de 2
pair msdocs de 2
pair dynamics de 2
for c in tatoeba docs bilara mlqe-pe phpdoc chromium-l10n; do pair $c de 1; done
for c in msdocs docs dynamics; do pair $c zh 2; done
for c in tatoeba 3am mlqe-pe techdocs phpdoc chromium-l10n; do pair $c zh 1; done
keep mono-zh/tatoeba-zh.txt 1
keep mono-zh/laws-zh.txt 2
# For validation, and tests whose sentences must not be trained on.
for l in de zh; do
  for c in tatoeba mlqe-pe msdocs; do for s in en "$l"; do for t in valid test; do keep "$c-en-$l/$t.$s" 1; done; done; done
  keep "newstest/flores200-devtest.$l" 1
done
keep newstest/flores200-devtest.en 1
for y in 2013 2014; do for l in en de; do keep "newstest/newstest$y.en-de.$l" 1; done; done
for l in en zh; do keep "newstest/newstest2017.zh-en.$l" 1; done
for l in en de; do keep "multi30k/test2016.$l" 1; done
