#!/usr/bin/env bash
# Translations of the training text by the teachers, for sequence-level distillation.
#
#   bash recipes/bundled-model/distill.sh first data bundled-teacher1 distilled         (corpora, plain or .xz; teacher; output folder)
#   bash recipes/bundled-model/distill.sh second data bundled-teacher2 distilled text    (text: written by training_text.py)
#   bash recipes/bundled-model/distill.sh third data bundled-stage3-int8 distilled text
#   bash recipes/bundled-model/distill.sh fourth data bundled-teacher3 distilled text
#
# Teacher 1, for stage 2:
#   en-de.en    English of Europarl                             -> en-de.de
#   de-en.de    German of Europarl                              -> de-en.en
#   more-de.en  English of the Chinese corpora                  -> more-de.de
#   more-zh.en  everyday English, and some of Europarl          -> more-zh.zh
# Teacher 2, for stage 3:
#   en-de-{1,2,3}.en  Europarl's English in two parts, everyday English     -> en-de-{1,2,3}.de
#   de-en-{1,2,3}.de  Europarl's German in two parts, everyday German       -> de-en-{1,2,3}.en
# Stage 3 itself, for stage 4; training_text.py selects the one of four translations closest to the reference:
#   own-{1,2,3}.de    Europarl's German in two parts, everyday German       -> own-{1,2,3}.json, four of each line
#   own-{4,5}.en      everyday English, some of Europarl                    -> own-{4,5}.zh
# Teacher 3, for stage 4:
#   late-{1,2,3}.en   Europarl's English in three parts                     -> late-{1,2,3}.de
#   late-4.en         everyday English                                      -> late-4.json, four of each line
#   late-5.en         English of the Chinese everyday corpora and captions  -> late-5.de
#
# Most pair a line of the corpora with the teacher's translation; more-* add text that a language pair lacks. English
# lines of test and validation sets are excluded. Rerun a command after an interruption: finished files are kept.
set -euo pipefail
stop() { echo "distill.sh: $*" >&2; exit 2; }
case "${1:-} $#" in
first\ 4 | second\ 5 | third\ 5 | fourth\ 5) round=$1 data=$2 teacher=$3 out=$4 plain=${5:-} ;;
*) stop "give first DATA TEACHER OUT, or second, third or fourth DATA TEACHER OUT TEXT, not '$*'." ;;
esac
if [ ! -d "$data" ]; then stop "$data: there is no such folder. Put the corpora there."; fi
if [ "$round" != first ] && [ ! -e "$plain/parliament.en" ]; then
  stop "$plain/parliament.en: there is no such file. Run first: python3 recipes/bundled-model/training_text.py corpora $data $plain"
fi
mkdir -p "$out"

text() { # text LANGUAGE CORPUS…: one side of several corpora
  local language=$1 corpus
  for corpus in "${@:2}"; do
    if [ -e "$data/$corpus/train.$language" ]; then cat "$data/$corpus/train.$language"; else xzcat "$data/$corpus/train.$language.xz"; fi
  done
}
held_out() { cat "$data"/newstest/*.en "$data"/*-en-*/{valid,test}.en "$data"/*/test*.en; }

write() { # write NAME COMMAND…: the file has its name once the command has ended well
  if [ -e "$out/$1" ]; then return; fi
  "${@:2}" > "$out/$1.new"
  mv "$out/$1.new" "$out/$1"
}
new() { awk 'NR == FNR { seen[$0]; next } !($0 in seen) { seen[$0]; print }' "$out/held-out.en" -; }
most() { sed -n "1,${MOST_LINES:-$1}p"; } # MOST_LINES shortens a trial run
parliament() { text "$1" europarl-en-de | most "$2"; }
unseen() { text en "${@:2}" | new | most "$1"; }
everyday() { text "$1" tatoeba-en-de | most '$'; }
part() { sed -n "$1,${2}p" | most '$'; }
plain_english() { part "$1" "$2" < "$plain/parliament.en"; }
german() { text de europarl-en-de | part "$1" "$2"; }

jobs=() failed=0
translate() { # translate FROM TO NAME [SETTING…]: all in parallel on one GPU
  local output=$out/$3.${ending:-$2}
  if [ -e "$output" ]; then return; fi
  python3 -m heedful translate -m "$teacher" -i "$out/$3.$1" -o "$output" --from "$1" --to "$2" \
    --chunk-lines 20000 --decoding.tokens_per_batch=262144 "${@:4}" ${DEVICE:---device cuda --quantization bfloat16} &
  jobs+=($!)
}
four() { ending=json translate "$@" --json --num-best 4; }
case $round in
first)
  write held-out.en held_out
  write en-de.en parliament en 320000
  write de-en.de parliament de 300000
  write more-de.en unseen 420000 msdocs-en-zh
  write more-zh.en unseen 380000 tatoeba-en-de europarl-en-de
  translate en de en-de
  translate de en de-en
  translate en de more-de --method greedy
  translate en zh more-zh --method greedy
  ;;
second)
  write en-de-1.en plain_english 1 200000
  write en-de-2.en plain_english 200001 400000
  write en-de-3.en everyday en
  write de-en-1.de german 1 150000
  write de-en-2.de german 150001 300000
  write de-en-3.de everyday de
  for number in 1 2 3; do
    translate en de "en-de-$number"
    translate de en "de-en-$number"
  done
  ;;
third)
  write held-out.en held_out
  write own-1.de german 300001 450000
  write own-2.de german 450001 600000
  write own-3.de everyday de
  write own-4.en unseen '$' tatoeba-en-de
  write own-5.en plain_english 300001 450000
  for number in 1 2 3; do four de en "own-$number"; done
  translate en zh own-4
  translate en zh own-5
  ;;
fourth)
  write held-out.en held_out
  write late-1.en plain_english 1 250000
  write late-2.en plain_english 250001 500000
  write late-3.en plain_english 500001 '$'
  write late-4.en everyday en
  write late-5.en unseen '$' tatoeba-en-zh 3am-en-zh
  for number in 1 2 3 5; do translate en de "late-$number"; done
  four en de late-4
  ;;
esac
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
exit $failed
