/** A sentence as a row of tokens. Pointing at one lights it everywhere; a click chooses it. */

import { useEffect, useRef } from "preact/hooks";

import { type Group } from "../pieces.js";
import type { Hover, Store } from "../state.js";
import { useStore } from "../state.js";

export interface TokensProps {
  store: Store;
  side: Hover["side"];
  /** What stands before the row. */
  title: string;
  groups: readonly Group[];
  /** Index of the first token among those of `Hover`. */
  offset?: number;
  /** Tokens from here on are not chosen yet. */
  visible?: number;
  current?: number;
  /** The number of tokens at the beginning that the reader chose. */
  forced?: number;
  onSelect?: (index: number) => void;
}

export function Tokens({ store, side, title, groups, offset = 0, visible = Infinity, current, forced = 0, onSelect }: TokensProps) {
  const hover = useStore(store, () => (store.hover?.side === side ? store.hover.index : -1));
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => showCurrent(list.current), [current]);
  return (
    <ul class="tokens" ref={list} aria-label={title} onMouseLeave={() => store.setHover(null)}>
      <li class="side small" aria-hidden="true">{title}</li>
      {groups.map(({ start, end, text, kind }) => {
        const lit = hover >= start + offset && hover < end + offset;
        const hidden = start >= visible;
        const selected = current !== undefined && current >= start && current < end;
        return (
          <li key={start}>
            <button
              type="button"
              class={`token ${side} ${kind} ${lit ? "lit" : ""} ${hidden ? "hidden" : ""} ${start < forced ? "forced" : ""}`}
              aria-current={selected}
              aria-hidden={hidden}
              disabled={hidden}
              data-index={start}
              data-token={text}
              onMouseEnter={() => store.setHover({ side, index: start + offset })}
              onFocus={() => store.setHover({ side, index: start + offset })}
              onClick={() => onSelect?.(start)}
            >
              {text}
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** Scroll the list, and nothing else, so that the current token is in it. */
function showCurrent(list: HTMLUListElement | null): void {
  const token = list?.querySelector("[aria-current=true]");
  if (!list || !token) return;
  const [outer, inner] = [list.getBoundingClientRect(), token.getBoundingClientRect()];
  if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
  else if (inner.top < outer.top) list.scrollTop += inner.top - outer.top;
}
