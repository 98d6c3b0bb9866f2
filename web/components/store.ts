/** Values that components follow: they are drawn again when the value that they read changes. */

import { useEffect, useState } from "preact/hooks";

export type Listener = () => void;

export interface Observable {
  subscribe(listener: Listener): () => void;
}

/** What `read` returns, read again after each change; the component is drawn again if it is another value. */
export function useStore<Value>(store: Observable, read: () => Value): Value {
  const [, draw] = useState(0);
  const value = read();
  const box = useState({ value, read })[0];
  box.value = value;
  box.read = read;
  useEffect(
    () =>
      store.subscribe(() => {
        if (!Object.is(box.read(), box.value)) draw((count) => count + 1);
      }),
    [store],
  );
  return value;
}
