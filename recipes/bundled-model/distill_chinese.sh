#!/usr/bin/env bash
# The text of stage 5: what the Chinese teacher and the model itself make of the corpora.
#
#   bash recipes/bundled-model/distill_chinese.sh data teacher student distilled text
#
# data: the corpora, plain or .xz; teacher: written by opus_mt.py import; student: the stage 4 model in int8.
# DICTIONARY names jieba's dict.txt; without it the installed package jieba is asked.
# TOY=5 takes five lines of each file and DEVICE=cpu runs without a GPU. Finished files are kept, so that a run that was
# stopped can be repeated.
set -euo pipefail
if [ $# != 5 ]; then echo "distill_chinese.sh: give DATA TEACHER STUDENT DISTILLED TEXT, not '$*'." >&2; exit 2; fi
data=$1 teacher=$2 student=$3 out=$4 text=$5
here=$(dirname "$0") python=${PYTHON:-python3} device=${DEVICE:-cuda}
mkdir -p "$out" "$text"

lines() { if [ -e "$data/$1" ]; then cat "$data/$1"; else xzcat "$data/$1.xz"; fi; }
most() { sed -n "1,${TOY:-${1:-\$}}p"; }
part() { sed -n "$1,${2}p" | most; }
write() { if [ ! -e "$out/$1" ]; then cat > "$out/$1.new"; mv "$out/$1.new" "$out/$1"; else cat > /dev/null; fi; }
parliament() { cat "$out/parliament.en"; }
dictionary=${DICTIONARY:-$($python -c 'import jieba; print(jieba.__path__[0] + "/dict.txt")')}
frequent() { # words of two characters or more with their kinds, without names of people, numbers and times
  LC_ALL=C sort -k2,2nr "$dictionary" | LC_ALL=C awk 'length($1) > 3 && $1 !~ /[ -~]/ && $3 !~ /^(nr|m|t|o|eng|x)/ {
    print $1 "\t" $3 }' | sed -n 1,60000p
}
choose() { $python "$here/select_translations.py" "$@"; }
log() { echo "$(date +%T) $*" >&2; }
teach() { # teach IN OUT [--num-best 4 | --beams 1]
  if [ ! -e "$2" ]; then $python "$here/opus_mt.py" translate "$teacher" "$1" "$2" --device "$device" "${@:3}"; fi
}
own() { # own FROM TO NAME ENDING [SETTING…]: the model's own translations
  if [ -e "$out/$3.$4" ]; then return; fi
  local where=(--device cuda --quantization bfloat16)
  if [ "$device" = cpu ]; then where=(); fi
  $python -m heedful translate -m "$student" -i "$out/$3.$1" -o "$out/$3.$4" --from "$1" --to "$2" --chunk-lines 20000 \
    --no-protect --decoding.checks=false --decoding.tokens_per_batch=131072 "${where[@]}" "${@:5}"
}
four=(--json --num-best 4)

lines europarl-en-de/train.en > "$out/parliament.raw"
choose plain "$out/parliament.raw" "$out/parliament.en"
cp "$out/parliament.en" "$text/"
parliament | part 360001 480000 | write round-1.en
lines tatoeba-en-de/train.en | awk 'NR % 3 < 2' | most 110000 | write round-2.en
lines europarl-en-de/train.de | part 1 160000 | write own-1.de
parliament | part 1 160000 | write own-1.ref.en
parliament | part 160001 360000 | write own-2.en
lines europarl-en-de/train.de | part 160001 360000 | write own-2.ref.de
for l in en de; do lines tatoeba-en-de/train.$l | most | write everyday.$l; done
cp "$out/everyday.de" "$out/own-3.de"; cp "$out/everyday.en" "$out/own-4.en"
for c in tatoeba 3am mlqe-pe; do lines $c-en-zh/train.en | most; done | write fresh.en
lines mono-zh/laws-zh.txt | most 90000 | write laws.zh
lines mono-zh/tatoeba-zh.txt | most | write sayings.zh
for c in tatoeba 3am mlqe-pe; do lines $c-en-zh/train.zh | most; done | write near.zh
for c in tatoeba 3am mlqe-pe; do lines $c-en-zh/train.en | most; done | write near.ref.en
frequent > "$out/frequent"
cut -f1 "$out/frequent" | most | write words.zh
cut -f2 "$out/frequent" | most | write words.kind
# Wikipedia has the style of what is missing most, so its sentences are taken often.
lines mlqe-pe-en-zh/train.zh | most | write encyclopedia.zh
replace() { if [ ! -e "$out/$1.zh" ]; then $python "$here/replace_words.py" "$dictionary" "${TOY:-$2}" "$out/$1.zh" "${@:3}"; fi; }
replace replaced-1 180000 "$out/sayings.zh" "$out/near.zh" &
replace replaced-2 70000 "$out/encyclopedia.zh" &
replace replaced-3 60000 "$out/laws.zh" &
wait
log lines are there

jobs=()
start() { "$@" & jobs+=($!); }
finish() { local failed=0 job; for job in "${jobs[@]}"; do wait "$job" || failed=1; done; jobs=(); return $failed; }
rounds() { # there by the model, back by the teacher
  own en zh "$1" json --json --num-best 3
  choose flatten "$out/$1.json" "$out/$1.zh"
  teach "$out/$1.zh" "$out/$1.back" --beams 1
  choose round "$out/$1.json" "$out/$1.zh" "$out/$1.back" "$text/$1"
  log "$1 is there"
}
learned() { # learned NAME: the teacher's translations, if they are sound
  teach "$out/$1.zh" "$out/$1.en"
  choose sound "$out/$1.zh" "$out/$1.en" "$text/$1"
  log "$1 is there"
}
closest() { # closest FROM TO NAME REFERENCE KEPT
  own "$1" "$2" "$3" json "${four[@]}"
  choose nearest "$out/$3.json" "$4" "$text/$5.$1" "$text/$5.$2"
  log "$5 is there"
}
near() {
  teach "$out/near.zh" "$out/near.json" --num-best 4
  choose nearest "$out/near.json" "$out/near.ref.en" "$text/near.zh" "$text/near.en"
  log near is there
}
words() {
  teach "$out/words.zh" "$out/words.en"
  choose words "$out/words.zh" "$out/words.kind" "$out/words.en" "$text/words"
  log words are there
}
fresh() {
  own en de fresh de
  cp "$out/fresh.en" "$out/fresh.de" "$text/"
  log fresh is there
}
in_turn() { local failed=0 step; for step in "$@"; do $step || failed=1; done; return $failed; } # a lane: one step after the other
start rounds round-1
start in_turn "rounds round-2" fresh
start in_turn "closest de en own-3 $out/everyday.en own-everyday" "closest de en own-1 $out/own-1.ref.en own"
start in_turn "closest en de own-4 $out/everyday.de late-everyday" "closest en de own-2 $out/own-2.ref.de late"
start in_turn "learned replaced-1"
start in_turn near words "learned replaced-3"
start in_turn "learned replaced-2" "learned sayings" "learned laws"
finish || { log some of it failed; exit 1; }
log all translated
