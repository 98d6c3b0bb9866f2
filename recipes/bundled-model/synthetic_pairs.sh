#!/usr/bin/env bash
# Pairs that scripts write for the bundled model's last training: bash recipes/bundled-model/synthetic_pairs.sh data text
# text holds parliament.en already (distill_chinese.sh). MOST: how many pairs with masks from each corpus.
set -euo pipefail
data=$1 text=$2 here=$(dirname "$0") python=${PYTHON:-python3} most=${MOST:-6000}
$python "$here/training_text.py" forms "$data" "$text" &
$python "$here/synthetic_numbers.py" "$text" &
$python "$here/synthetic_figures.py" "$text" &
$python "$here/synthetic_names.py" "$text" &
$python "$here/synthetic_domain.py" "$text" &
de=("$text/parliament.en=$data/europarl-en-de/train.de") zh=()
for c in tatoeba msdocs dynamics mlqe-pe phpdoc chromium-l10n docs; do de+=("$data/$c-en-de/train.en=$data/$c-en-de/train.de"); done
for c in tatoeba msdocs dynamics mlqe-pe phpdoc chromium-l10n docs techdocs; do zh+=("$data/$c-en-zh/train.en=$data/$c-en-zh/train.zh"); done
$python "$here/synthetic_masks.py" "$text/masks-german" en-de "$most" "${de[@]}" &
$python "$here/synthetic_masks.py" "$text/masks-chinese" en-zh "$most" "${zh[@]}" &
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
exit $failed
