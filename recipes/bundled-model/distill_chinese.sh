#!/usr/bin/env bash
# The text of stage 5: what the Chinese teacher and the model itself make of the corpora.
#
#   bash recipes/bundled-model/distill_chinese.sh data teacher student distilled text [LANE…]
#
# The lanes run in parallel on one GPU; without any, all do. The steps of a lane, joined by commas, run in order.
# data: the corpora, plain or .xz; teacher: written by opus_mt.py import; student: the stage 4 model in int8.
# DICTIONARY names jieba's dict.txt; without it the installed package jieba is asked.
# TOY=5 takes five lines of each file and DEVICE=cpu runs without a GPU. Finished files are kept, so that a run that was
# stopped can be repeated.
set -euo pipefail
if [ $# -lt 5 ]; then echo "distill_chinese.sh: give DATA TEACHER STUDENT DISTILLED TEXT [LANE…], not '$*'." >&2; exit 2; fi
data=$1 teacher=$2 student=$3 out=$4 text=$5
here=$(dirname "$0") python=${PYTHON:-python3} device=${DEVICE:-cuda}
lanes=("${@:6}")
if [ $# = 5 ]; then
  lanes=(german-en,everyday-de english-de,everyday-en round-1 round-2,fresh)
  lanes+=(replaced-1 near,words,replaced-3 replaced-2,sayings,laws)
fi
mkdir -p "$out" "$text"

lines() { if [ -e "$data/$1" ]; then cat "$data/$1"; else xzcat "$data/$1.xz"; fi; }
most() { sed -n "1,${TOY:-${1:-\$}}p"; }
part() { sed -n "$1,${2}p" | most; }
write() { if [ ! -e "$out/$1" ]; then cat > "$out/$1.new"; mv "$out/$1.new" "$out/$1"; else cat > /dev/null; fi; }
case "${lanes[*]}" in
*replaced* | *words*) dictionary=${DICTIONARY:-$($python -c 'import jieba; print(jieba.__path__[0] + "/dict.txt")')} ;;
esac
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
choose_plain() { if [ ! -e "$text/parliament.en" ]; then # English of Europarl with plain punctuation
  lines europarl-en-de/train.en > "$out/parliament.raw.$$"
  choose plain "$out/parliament.raw.$$" "$out/parliament.$$.en"
  mv "$out/parliament.$$.en" "$text/parliament.en"
fi; }
parliament() { cat "$text/parliament.en"; }
german() { lines europarl-en-de/train.de; }
everyday_chinese() { for c in tatoeba 3am mlqe-pe; do lines "$c-en-zh/train.$1" | most; done; }
replace() { if [ ! -e "$out/$1.zh" ]; then $python "$here/replace_words.py" "$dictionary" "${TOY:-$2}" "$out/$1.zh" "${@:3}"; fi; }
rounds() { # there by the model, back by the teacher
  own en zh "$1" json --json --num-best 3
  choose flatten "$out/$1.json" "$out/$1.zh"
  teach "$out/$1.zh" "$out/$1.back" --beams 1
  choose round "$out/$1.json" "$out/$1.zh" "$out/$1.back" "$text/$1"
}
learned() { # learned NAME: the teacher's translations, if they are sound
  teach "$out/$1.zh" "$out/$1.en"
  choose sound "$out/$1.zh" "$out/$1.en" "$text/$1"
}
closest() { # closest FROM TO NAME REFERENCE KEPT
  own "$1" "$2" "$3" json "${four[@]}"
  choose nearest "$out/$3.json" "$4" "$text/$5.$1" "$text/$5.$2"
}

lane() {
  case $1 in
  plain) choose_plain ;;
  german-en) # German with references, four translations each
    choose_plain
    german | part 1 125000 | write own-1.de
    parliament | part 1 125000 | write own-1.ref.en
    closest de en own-1 "$out/own-1.ref.en" own
    ;;
  english-de)
    choose_plain
    parliament | part 125001 300000 | write own-2.en
    german | part 125001 300000 | write own-2.ref.de
    closest en de own-2 "$out/own-2.ref.de" late
    ;;
  everyday-en | everyday-de)
    local from=${1#everyday-} name
    if [ "$from" = en ]; then name=own-4; else name=own-3; fi
    for l in en de; do lines tatoeba-en-de/train.$l | most | write "$name.ref.$l"; done
    cp "$out/$name.ref.$from" "$out/$name.$from"
    if [ "$from" = en ]; then closest en de own-4 "$out/own-4.ref.de" late-everyday; else closest de en own-3 "$out/own-3.ref.en" own-everyday; fi
    ;;
  fresh) # the English of the Chinese corpora, into German
    everyday_chinese en | write fresh.en
    own en de fresh de
    cp "$out/fresh.en" "$out/fresh.de" "$text/"
    ;;
  round-1)
    choose_plain
    parliament | part 300001 375000 | write round-1.en
    rounds round-1
    ;;
  round-2)
    lines tatoeba-en-de/train.en | awk 'NR % 3 < 2' | most 110000 | write round-2.en
    rounds round-2
    ;;
  replaced-1)
    lines mono-zh/tatoeba-zh.txt | most | write replaced-1.from
    everyday_chinese zh | write replaced-1.too
    replace replaced-1 180000 "$out/replaced-1.from" "$out/replaced-1.too"
    learned replaced-1
    ;;
  replaced-2) # Wikipedia has the style of what is missing most, so its sentences are taken often.
    lines mlqe-pe-en-zh/train.zh | most | write encyclopedia.zh
    replace replaced-2 120000 "$out/encyclopedia.zh"
    learned replaced-2
    ;;
  replaced-3)
    lines mono-zh/laws-zh.txt | most | write replaced-3.from
    replace replaced-3 60000 "$out/replaced-3.from"
    learned replaced-3
    ;;
  near)
    everyday_chinese zh | write near.zh
    everyday_chinese en | write near.ref.en
    teach "$out/near.zh" "$out/near.json" --num-best 4
    choose nearest "$out/near.json" "$out/near.ref.en" "$text/near.zh" "$text/near.en"
    ;;
  words)
    frequent > "$out/frequent"
    cut -f1 "$out/frequent" | most | write words.zh
    cut -f2 "$out/frequent" | most | write words.kind
    teach "$out/words.zh" "$out/words.en"
    choose words "$out/words.zh" "$out/words.kind" "$out/words.en" "$text/words"
    ;;
  sayings | laws)
    if [ "$1" = laws ]; then lines mono-zh/laws-zh.txt | most 90000; else lines mono-zh/tatoeba-zh.txt | most; fi | write "$1.zh"
    learned "$1"
    ;;
  *) echo "distill_chinese.sh: $1: no such lane." >&2; return 2 ;;
  esac
  log "$1 is there"
}
if [ ${#lanes[@]} = 1 ] && [[ ${lanes[0]} != *,* ]]; then
  lane "${lanes[0]}"
  exit
fi
in_turn() { local failed=0 step; for step in ${6//,/ }; do bash "$0" "${@:1:5}" "$step" || failed=1; done; return $failed; }
jobs=() failed=0
for steps in "${lanes[@]}"; do in_turn "${@:1:5}" "$steps" & jobs+=($!); done
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
if [ $failed = 1 ]; then log some of it failed; exit 1; fi
log all translated
