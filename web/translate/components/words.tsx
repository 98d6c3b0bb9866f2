/** The words of all sentences of one side. Those that correspond to the word under the pointer are lit. */

import "./words.css";

import { useMemo } from "preact/hooks";

import { useStore } from "../../components/store.js";
import type { Store } from "../state.js";
import { overlap, type Span } from "../spans.js";
import { correspondingSpans, type Place, type Sentence, type Side } from "../translation.js";

/** Gives a line break at the end of a text its line. */
export const END = "\u200b";

export interface WordsProps {
  store: Store;
  side: Side;
  sentences: readonly Sentence[];
  /** The source text; undefined for the translation. */
  text?: string;
}

export function Words({ store, side, sentences, text }: WordsProps) {
  return (
    <p class="words">
      {sentences.map((sentence, index) => {
        const before = text === undefined ? sentence.space : text.slice(sentences[index - 1]?.span[1] ?? 0, sentence.span[0]);
        return [before, <SentenceWords key={index} store={store} side={side} sentence={sentence} index={index} />];
      })}
      {text?.slice(sentences.at(-1)?.span[1] ?? 0)}{text !== undefined && END}
    </p>
  );
}

function SentenceWords({ store, side, sentence, index }: { store: Store; side: Side; sentence: Sentence; index: number }) {
  const place = useStore(store, () => (store.state.hover?.sentence === index ? store.state.hover : null));
  const opened = useStore(store, () => (side === "target" && store.state.opened?.sentence === index ? store.state.opened.word : -1));
  const all = side === "source" ? sentence.sourceWords : sentence.words;
  return useMemo(() => {
    const lit: readonly Span[] = place === null ? [] : correspondingSpans(sentence, place.side, place.word)[side];
    const isFirst = all.findIndex(({ isWord }) => isWord);
    return (
      <span class={`part ${place === null ? "" : "lit"} ${sentence.isChosen ? "chosen" : ""}`}>
        {all.map(({ span, text, isWord }, word) => {
          if (!isWord) return text;
          const isLit = lit.some((one) => overlap(one, span));
          const classes = `word ${isLit ? "lit" : ""} ${word === opened ? "opened" : ""}`;
          if (side === "source") return <span key={word} class={classes} data-sentence={index} data-word={word}>{text}</span>;
          return (
            <span
              key={word} class={classes} data-sentence={index} data-word={word} role="button" aria-haspopup="dialog" aria-expanded={word === opened}
              tabIndex={index === 0 && word === isFirst ? 0 : -1}
            >
              {text}
            </span>
          );
        })}
      </span>
    );
  }, [sentence, place, opened, side]);
}

/** The word that an element shows. */
export function placeOf(element: Element | null | undefined, side: Side): Place | null {
  const word = element?.closest<HTMLElement>("[data-word]");
  return word ? { side, sentence: Number(word.dataset.sentence), word: Number(word.dataset.word) } : null;
}

export function samePlace(one: Place | null, other: Place | null): boolean {
  return one?.side === other?.side && one?.sentence === other?.sentence && one?.word === other?.word;
}
