#!/usr/bin/env bash
# Pairs that scripts write for the bundled model's last training: bash configs/bundled-pairs.sh data text
# text holds parliament.en already (bundled-text.sh). MOST: how many pairs with masks from each corpus.
set -euo pipefail
data=$1 text=$2 here=$(dirname "$0") python=${PYTHON:-python3} most=${MOST:-6000}
$python "$here/box-text.py" forms "$data" "$text" &
$python "$here/box-numbers.py" "$text" &
$python "$here/box-figures.py" "$text" &
$python "$here/box-names.py" "$text" &
$python "$here/bundled-domain.py" "$text" &
de=("$text/parliament.en=$data/europarl-en-de/train.de") zh=()
for c in tatoeba msdocs dynamics mlqe-pe phpdoc chromium-l10n docs; do de+=("$data/$c-en-de/train.en=$data/$c-en-de/train.de"); done
for c in tatoeba msdocs dynamics mlqe-pe phpdoc chromium-l10n docs techdocs; do zh+=("$data/$c-en-zh/train.en=$data/$c-en-zh/train.zh"); done
$python "$here/bundled-masks.py" "$text/masks-german" en-de "$most" "${de[@]}" &
$python "$here/bundled-masks.py" "$text/masks-chinese" en-zh "$most" "${zh[@]}" &
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
exit $failed
