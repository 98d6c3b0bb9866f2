/** A button that copies a text and says so. */

import { useState } from "preact/hooks";

export interface CopyButtonProps {
  class: string;
  label: string;
  copied: string;
  disabled?: boolean;
  content: () => string;
  onCopy?: () => void;
}

export function CopyButton({ class: name, label, copied, disabled = false, content, onCopy }: CopyButtonProps) {
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    onCopy?.();
    await copyText(content());
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <button type="button" class={name} disabled={disabled} onClick={() => void copy()}>
      <span aria-live="polite">{isCopied ? copied : label}</span>
    </button>
  );
}

/** Browsers have a clipboard only on secure pages, and may refuse it; then a selected text area is copied. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // the other way
  }
  const area = document.body.appendChild(document.createElement("textarea"));
  area.className = "visually-hidden";
  area.value = text;
  area.select();
  document.execCommand("copy");
  area.remove();
}
