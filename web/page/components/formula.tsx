/** A short formula as text: W_Q is written W with the index Q. */

import type { JSX } from "preact";

export function Formula({ children }: { children: string }): JSX.Element {
  const parts = children.split(/_([A-Za-z0-9]+)/);
  return <>{parts.map((part, index) => (index % 2 === 1 ? <sub key={index}>{part}</sub> : part))}</>;
}
