#!/usr/bin/env bash
# Train the second bundled model, English and Chinese, on one GPU in a fixed time. run.sh has the steps before.
#
#   bash recipes/bundled-model/en_zh.sh DATA TEACHER MODEL VOCABULARY WORK TRANSLATE_SECONDS SECONDS
#
# DATA: the corpora (cut_corpora.sh), and in DATA/own the model's translations into Chinese (run.sh). TEACHER: written by
# opus_mt.py import; it may appear later. MODEL: that of stage 4 in int8. VOCABULARY: written by new_vocabulary.py learn.
# DICTIONARY names jieba's dict.txt; without it the installed package is asked. The model is written to WORK/en-zh-int8.
#
# The teacher translates Chinese text into English. What it has translated TRANSLATE_SECONDS after the start is selected,
# the rest is left out. Training ends SECONDS after the start. TOY=4 DEVICE=cpu rehearses it with a few lines and updates.
set -euo pipefail
if [ $# != 7 ]; then echo "en_zh.sh: give DATA TEACHER MODEL VOCABULARY WORK TRANSLATE_SECONDS SECONDS, not '$*'." >&2; exit 2; fi
begin=$(date +%s) here=$(realpath "$(dirname "$0")") python=${PYTHON:-python3} device=${DEVICE:-cuda}
teacher=$(realpath -m "$2") model=$(realpath "$3") vocabulary=$(realpath "$4") translate_seconds=$6 seconds=$7
mkdir -p "$5"/{log,text,distilled}
ln -sfn "$(realpath "$1")" "$5/data"
cd "$5"
made=distilled
passed() { echo $(( $(date +%s) - begin )); }
log() { echo "$(passed) s: $*" >&2; }
exists() { [ -s "$1" ] || [ -s "$1.xz" ]; }
lines() { if [ -e "data/$1" ]; then cat "data/$1"; else xzcat "data/$1.xz"; fi; }
most() { sed -n "1,${TOY:-${1:-\$}}p"; }
choose() { $python "$here/select_translations.py" "$@"; }

everyday() { local corpus; for corpus in tatoeba 3am mlqe-pe; do lines "$corpus-en-zh/train.$1" | most; done; }
replace() { $python "$here/replace_words.py" "$dictionary" "${TOY:-$2}" "$made/$1.zh" "${@:3}"; }
frequent() { # words of two characters or more with their kinds, without names of people, numbers and times
  LC_ALL=C sort -k2,2nr "$dictionary" | LC_ALL=C awk 'length($1) > 3 && $1 !~ /[ -~]/ && $3 !~ /^(nr|m|t|o|eng|x)/ {
    print $1 "\t" $3 }' | most 60000
}
in_parts() { # in_parts NAME ENDING…: files with equally many lines
  local ending
  for ending in "${@:2}"; do
    split -l "${PART:-20000}" -d -a 3 --additional-suffix=".$ending" "$made/$1.$ending" "$made/$1.part-"
  done
}
sources() { # the text that the teacher translates
  local name
  everyday zh > $made/near.zh
  everyday en > $made/near.reference
  lines mono-zh/tatoeba-zh.txt | most > $made/sayings.zh
  lines mono-zh/laws-zh.txt | most > $made/laws.zh
  lines mlqe-pe-en-zh/train.zh | most > $made/encyclopedia.zh
  frequent > $made/words
  cut -f1 $made/words > $made/words.zh
  cut -f2 $made/words > $made/words.kind
  replace replaced-1 120000 $made/sayings.zh $made/near.zh &
  replace replaced-2 200000 $made/encyclopedia.zh & # Wikipedia has the style of what is missing most
  replace replaced-3 40000 $made/laws.zh &
  for name in round-1 round-3; do
    lines "own/$name.json" | most > "$made/$name.json"
    choose flatten "$made/$name.json" "$made/$name.zh"
    in_parts $name zh
  done
  in_parts near zh reference
  in_parts words zh kind
  for name in sayings laws; do in_parts $name zh; done
  wait
  for name in replaced-{1,2,3}; do in_parts $name zh; done
}
synthetic() { # pairs that scripts write
  local corpus name pairs=()
  for corpus in tatoeba msdocs dynamics mlqe-pe phpdoc chromium-l10n docs techdocs; do
    pairs+=("data/$corpus-en-zh/train.en=data/$corpus-en-zh/train.zh")
  done
  for name in numbers figures names domain; do $python "$here/synthetic_$name.py" text & done
  $python "$here/training_text.py" chinese_forms data text &
  $python "$here/synthetic_masks.py" text/masks-chinese en-zh 6000 "${pairs[@]}" &
  wait
}

lane() { # lane NAME[/FIRST/EVERY],…: the texts one after the other; of the parts every n-th
  local one name first every ending number part settings files
  for one in ${1//,/ }; do
    IFS=/ read -r name first every <<< "$one/0/1"
    ending=en settings=() files=() number=0
    case $name in
    near) ending=json settings=(--num-best 4) ;;
    words | round-*) settings=(--beams 1) ;;
    esac
    for part in "$made/$name".part-*.zh; do
      if [ $(( number++ % ${every%%/*} )) = "$first" ]; then files+=("$part" "${part%.zh}.$ending"); fi
    done
    $python "$here/opus_mt.py" translate "$teacher" "${files[@]}" --device "$device" "${settings[@]}"
    log "$one is translated"
  done
}
translate() { # all lanes in parallel, at most until a time
  local lanes=(near sayings,words laws replaced-1 replaced-2/0/2,replaced-3 round-3,round-1,replaced-2/1/2) lane job jobs=()
  for lane in "${lanes[@]}"; do
    setsid bash -c "$(declare -f lane log passed) && $(declare -p begin here python device teacher made) && lane $lane" > "log/${lane//\//-}" 2>&1 &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do
    while kill -0 "$job" 2> /dev/null && [ "$(passed)" -lt "$translate_seconds" ]; do sleep 0.2; done
  done
  for job in "${jobs[@]}"; do kill -- "-$job" 2> /dev/null || true; done # each lane is a process group
}

complete() { # complete NAME ENDING…: the parts that are translated, joined
  local part ending
  for ending in zh "${@:2}"; do : > "$made/$1.done.$ending"; done
  for part in "$made/$1".part-*.zh; do
    if [ -e "${part%.zh}.$2" ]; then
      for ending in zh "${@:2}"; do cat "${part%.zh}.$ending" >> "$made/$1.done.$ending"; done
    fi
  done
}
select_all() {
  local name
  complete near json reference
  choose nearest $made/near.done.json $made/near.done.reference text/near.zh text/near.en &
  complete words en kind
  choose words $made/words.done.zh $made/words.done.kind $made/words.done.en text/words &
  for name in sayings laws replaced-{1,2,3}; do
    complete $name en
    choose sound $made/$name.done.zh $made/$name.done.en text/$name &
  done
  for name in round-{1,3}; do
    complete $name en
    choose round $made/$name.json $made/$name.done.zh $made/$name.done.en text/$name &
  done
  wait
}
present() { # the rows of the recipe whose texts exist
  local row
  while IFS= read -r row; do
    if [[ $row =~ source:\ ([^,]+),\ target:\ ([^,}]+) ]] && ! { exists "${BASH_REMATCH[1]}" && exists "${BASH_REMATCH[2]}"; }; then
      log "without ${BASH_REMATCH[1]}"
    else
      echo "$row"
    fi
  done < "$here/en_zh.yaml"
}
train() { # train MODEL CONFIG [SETTING…]
  local settings=("${@:3}")
  if [ -n "${TOY:-}" ]; then settings=(--training.minutes=null --training.steps=2 --training.tokens_per_step=512); fi
  $python -m heedful train "$2" -o "$1" --resume "${settings[@]}" > "log/$1" 2>&1 &
  local training=$!
  while kill -0 $training 2> /dev/null && ! grep -q '^Translating the' "log/$1"; do sleep 0.2; done
  kill $training 2> /dev/null || true # the model is saved; the tests are scored elsewhere
  wait $training || true
}

dictionary=${DICTIONARY:-$($python -c 'import jieba; print(jieba.__path__[0] + "/dict.txt")')}
(sources) 2> log/sources
log sources
$python "$here/new_vocabulary.py" replace "$model" "$vocabulary" start 2> log/start
until [ -e "$teacher/pieces.json" ]; do sleep 0.2; done
(synthetic) 2> log/synthetic & # while the GPU translates
scripts=$!
translate
wait $scripts
log translated
(select_all) 2> log/selected
log selected
present > en-zh.yaml
$python -m heedful prepare en-zh.yaml -o prepared > log/prepare 2>&1
log prepared
$python - << 'P'
import yaml

with open("en-zh.yaml", encoding="utf-8") as file:
    config = yaml.safe_load(file)
config["data"] = {"prepared": "prepared"}
with open("train.yaml", "w", encoding="utf-8") as file:
    yaml.safe_dump(config, file)
P
minutes=$($python -c "print(max(0.1, ($seconds - $(passed) - 40) / 60))")
train en-zh train.yaml --training.minutes="$minutes"
log "trained for $minutes minutes"
$python -m heedful export --to compact -m en-zh -o en-zh-int8 --overwrite > log/export 2>&1
log exported
