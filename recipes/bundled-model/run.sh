#!/usr/bin/env bash
# Train the bundled model: every command from the corpora to the exported model, in order.
#
#   bash recipes/bundled-model/run.sh [--dry-run] stage4              29.3 million parameters
#   bash recipes/bundled-model/run.sh [--dry-run] stage5 PACKAGE      45.1 million parameters, grown from stage 4
#
# The corpora are in ./data, plain or .xz. Models are written to bundled-*, texts to distilled/ and text/, those of stage
# 5 to stage5/. PACKAGE is the OPUS-MT zh-en package of Argos Translate (.argosmodel). --dry-run prints the commands.
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

stage5() {
  local package=$1
  run bash $here/cut_corpora.sh data stage5/data
  run mkdir -p stage5/teacher
  run bash -c 'xzcat stage5/data/*-en-zh/train.zh.xz stage5/data/mono-zh/*.xz > stage5/chinese.txt'
  script opus_mt import "$package" stage5/teacher stage5/chinese.txt
  compact stage4 stage5/bundled-stage4-int8
  run bash $here/distill_chinese.sh stage5/data stage5/teacher stage5/bundled-stage4-int8 stage5/distilled stage5/text
  run bash $here/synthetic_pairs.sh stage5/data stage5/text
  script grow stage5/bundled-stage4-int8 stage5/bundled-grown --layers 14 --feed-forward 2048
  run bash -c "cd stage5 && heedful train ../$here/stage5.yaml -o ../bundled-stage5 --resume"
  compact stage5 heedful/bundled/en-de-zh
}

case "${1:-} $#" in
stage4\ 1) stage4 ;;
stage5\ 2) stage5 "$2" ;;
*)
  echo "run.sh: give stage4, or stage5 and the .argosmodel package, not '$*'." >&2
  exit 2
  ;;
esac
