#!/usr/bin/env bash
# Stage 5 on one GPU in a fixed time: translate, prepare the text that is finished by then, train until the end, export.
#
#   bash recipes/bundled-model/stage5_timed.sh DATA TEACHER STUDENT WORK TRANSLATE_SECONDS SECONDS
#
# DATA: the corpora (cut_corpora.sh); TEACHER: written by opus_mt.py import; STUDENT: the stage 4 model in int8.
# Everything is written to WORK, the model to WORK/bundled-stage5-int8. TRANSLATE_SECONDS and SECONDS count from the start.
# Translations that are not finished in time are left out. TOY=4 DEVICE=cpu rehearses it with a few lines and two updates.
set -euo pipefail
if [ $# != 6 ]; then echo "stage5_timed.sh: give DATA TEACHER STUDENT WORK TRANSLATE_SECONDS SECONDS, not '$*'." >&2; exit 2; fi
begin=$(date +%s) here=$(realpath "$(dirname "$0")") python=${PYTHON:-python3}
teacher=$(realpath "$2") student=$(realpath "$3") work=$4 translate_seconds=$5 seconds=$6
mkdir -p "$work/log"
ln -sfn "$(realpath "$1")" "$work/data"
cd "$work"
log() { echo "$(( $(date +%s) - begin )) s: $*" >&2; }
in_time() { [ $(( $(date +%s) - begin )) -lt "$1" ]; }
exists() { [ -s "$1" ] || [ -s "$1.xz" ]; }

distill() { bash "$here/distill_chinese.sh" data "$teacher" "$student" distilled text "$@"; }
distill plain
lanes=(german-en,everyday-de english-de,everyday-en round-1 round-2,fresh replaced-1 near,words,replaced-3 replaced-2,sayings,laws)
jobs=()
for lane in "${lanes[@]}"; do setsid bash "$here/distill_chinese.sh" data "$teacher" "$student" distilled text "$lane" > "log/$lane" 2>&1 & jobs+=($!); done
bash "$here/synthetic_pairs.sh" data text > log/synthetic 2>&1 || log "some synthetic pairs are missing: $work/log/synthetic"
$python "$here/grow.py" "$student" bundled-grown --layers 14 --feed-forward 2048 2> log/grow
running() { local job; for job in "${jobs[@]}"; do if kill -0 "$job" 2> /dev/null; then return 0; fi; done; return 1; }
while running && in_time "$translate_seconds"; do sleep 0.5; done
for job in "${jobs[@]}"; do kill -- "-$job" 2> /dev/null || true; done # each lane is a process group
log translated

while IFS= read -r row; do # the corpora that exist
  if [[ $row =~ source:\ ([^,]+),\ target:\ ([^,}]+) ]] && ! { exists "${BASH_REMATCH[1]}" && exists "${BASH_REMATCH[2]}"; }; then
    log "without ${BASH_REMATCH[1]}"
  else
    echo "$row"
  fi
done < "$here/stage5.yaml" > stage5.yaml
$python -m heedful prepare stage5.yaml -o prepared > log/prepare 2>&1
log prepared
$python - << 'P'
import yaml

with open("stage5.yaml", encoding="utf-8") as file:
    config = yaml.safe_load(file)
config["data"] = {"prepared": "prepared"}
with open("train.yaml", "w", encoding="utf-8") as file:
    yaml.safe_dump(config, file)
P
minutes=$($python -c "print(max(0.1, ($seconds - ($(date +%s) - $begin) - 45) / 60))")
settings=(--training.minutes="$minutes")
if [ -n "${TOY:-}" ]; then settings=(--training.minutes=null --training.steps=2 --training.tokens_per_step=512); fi
$python -m heedful train train.yaml -o bundled-stage5 "${settings[@]}" > log/train 2>&1 & training=$!
while kill -0 $training 2> /dev/null && ! grep -q '^Translating the' log/train; do sleep 0.5; done
kill $training 2> /dev/null || true # the model is saved; the tests are scored elsewhere
wait $training || true
log "trained for $minutes minutes"
$python -m heedful export --to compact -m bundled-stage5 -o bundled-stage5-int8 --overwrite > log/export 2>&1
log exported
