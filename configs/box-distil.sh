#!/usr/bin/env bash
# What the small model in the box learns from its teacher: translations of the training text.
#
#   bash configs/box-distil.sh data box-teacher distilled        (corpora, plain or .xz; teacher; folder for the result)
#
#   en-de.en    of parliament's English                         -> en-de.de
#   de-en.de    of parliament's German                          -> de-en.en
#   more-de.en  of the English beside Chinese                   -> more-de.de
#   more-zh.en  everyday English, and some of parliament's      -> more-zh.zh
#
# The first two tell the student what the teacher makes of each line; the others give each pair text that it does not have, real
# English beside the teacher's German or Chinese. English lines that stand in a test or valid set are left out of those.
# A command that was cut off goes on where it was: run the same again. Files that are whole are kept as they are.
set -euo pipefail
data=$1 teacher=$2 out=$3
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
write held-out.en held_out
write en-de.en parliament en 320000
write de-en.de parliament de 300000
write more-de.en unseen 420000 msdocs-en-zh
write more-zh.en unseen 380000 tatoeba-en-de europarl-en-de

translate() { # translate FROM TO NAME [SETTING…]
  if [ -e "$out/$3.$2" ]; then return; fi
  python3 -m heedful translate -m "$teacher" -i "$out/$3.$1" -o "$out/$3.$2" --from "$1" --to "$2" \
    --portion 20000 --decoding.tokens_per_batch=262144 "${@:4}" ${DEVICE:---device cuda --quantization bfloat16}
}
# All at once: they share the GPU, and while one reads or writes another computes.
translate en de en-de & translate de en de-en & translate en de more-de --method greedy & translate en zh more-zh --method greedy &
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
exit $failed
