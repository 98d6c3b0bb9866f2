#!/usr/bin/env bash
# What the small model in the box learns from its teachers: translations of the training text.
#
#   bash recipes/bundled-model/distill.sh first data box-teacher distilled         (corpora, plain or .xz; teacher; folder for the result)
#   bash recipes/bundled-model/distill.sh second data box-german distilled text    (text: made by training_text.py)
#   bash recipes/bundled-model/distill.sh third data box-third-int8 distilled text
#   bash recipes/bundled-model/distill.sh fourth data box-english-german distilled text
#
# The first teacher, for the second model:
#   en-de.en    of parliament's English                         -> en-de.de
#   de-en.de    of parliament's German                          -> de-en.en
#   more-de.en  of the English beside Chinese                   -> more-de.de
#   more-zh.en  everyday English, and some of parliament's      -> more-zh.zh
# The second teacher, which knows German best, for the third model:
#   en-de-{1,2,3}.en  parliament's English in two parts, everyday English   -> en-de-{1,2,3}.de
#   de-en-{1,2,3}.de  parliament's German in two parts, everyday German     -> de-en-{1,2,3}.en
# The third model itself, for the last one; of four translations of a line training_text.py takes that nearest to a person's:
#   own-{1,2,3}.de    parliament's German in two parts, everyday German     -> own-{1,2,3}.json, four of each line
#   own-{4,5}.en      everyday English, some of parliament's                -> own-{4,5}.zh
# The last teacher, which knows nothing but English to German:
#   late-{1,2,3}.en   parliament's English in three parts                   -> late-{1,2,3}.de
#   late-4.en         everyday English                                      -> late-4.json, four of each line
#   late-5.en         everyday English and captions, those beside Chinese   -> late-5.de
#
# Most tell the student what the teacher makes of each line; more-* give a pair text that it does not have, real
# English beside the teacher's German or Chinese. English lines that stand in a test or valid set are left out of those.
# A command that was cut off goes on where it was: run the same again. Files that are whole are kept as they are.
set -euo pipefail
stop() { echo "distill.sh: $*" >&2; exit 2; }
case "${1:-} $#" in
first\ 4 | second\ 5 | third\ 5 | fourth\ 5) lesson=$1 data=$2 teacher=$3 out=$4 plain=${5:-} ;;
*) stop "say first DATA TEACHER OUT, or second, third or fourth DATA TEACHER OUT TEXT, not '$*'." ;;
esac
if [ ! -d "$data" ]; then stop "$data: there is no such folder. Put the corpora there."; fi
if [ "$lesson" != first ] && [ ! -e "$plain/parliament.en" ]; then
  stop "$plain/parliament.en: there is no such file. Run first: python3 recipes/bundled-model/training_text.py corpora $data $plain"
fi
mkdir -p "$out"

text() { # the lines of a side of several corpora: text LANGUAGE CORPUS…
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
most() { sed -n "1,${MOST_LINES:-$1}p"; } # MOST_LINES: for a trial
parliament() { text "$1" europarl-en-de | most "$2"; }
unseen() { text en "${@:2}" | new | most "$1"; }
everyday() { text "$1" tatoeba-en-de | most '$'; }
part() { sed -n "$1,${2}p" | most '$'; }
plain_english() { part "$1" "$2" < "$plain/parliament.en"; }
german() { text de europarl-en-de | part "$1" "$2"; }

jobs=() failed=0
translate() { # translate FROM TO NAME [SETTING…]: all at once; they share the GPU, and while one reads or writes another computes
  local made=$out/$3.${ending:-$2}
  if [ -e "$made" ]; then return; fi
  python3 -m heedful translate -m "$teacher" -i "$out/$3.$1" -o "$made" --from "$1" --to "$2" \
    --chunk-lines 20000 --decoding.tokens_per_batch=262144 "${@:4}" ${DEVICE:---device cuda --quantization bfloat16} &
  jobs+=($!)
}
four() { ending=json translate "$@" --json --num-best 4; }
case $lesson in
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
