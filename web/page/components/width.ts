/** The width of an element, followed as it changes. */

import { useEffect, useState } from "preact/hooks";

/** A `ref` for the element, and its width in CSS pixels; `initial` until it is known. */
export function useWidth<Kind extends HTMLElement = HTMLElement>(initial: number): [(element: Kind | null) => void, number] {
  const [element, setElement] = useState<Kind | null>(null);
  const [width, setWidth] = useState(initial);
  useEffect(() => {
    if (element === null) return;
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setWidth(Math.floor(entry.contentRect.width));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, width];
}
