/** The choice of both languages, and the button that swaps them. */

import "./languages.css";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import { canTranslate, languageName, sources, targets } from "../languages.js";
import type { Session } from "../session.js";

const TEXTS = texts({
  en: { from: "From", to: "Into", detect: "Detect language", detected: (name: string) => `${name} (detected)`, swap: "Swap languages" },
  zh: { from: "源语言", to: "目标语言", detect: "自动检测", detected: (name: string) => `${name}（自动检测）`, swap: "交换语言" },
});

export function Languages({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const settings = useStore(store, () => store.state.settings);
  const from = useStore(store, () => store.state.from);
  const to = useStore(store, () => store.state.to);
  const detected = useStore(store, () => (store.state.text.trim() && store.state.translation?.isDetected ? store.state.translation.from : ""));
  const canSwap = useStore(store, () => session.canSwap());
  const name = (code: string): string => languageName(settings, code, store.state.language);
  const known = settings === null ? [] : sources(settings);
  const possible = settings === null ? [] : targets(settings);
  const source = from || detected;
  return (
    <div class="languages">
      <label>
        <span class="visually-hidden">{text.from}</span>
        <select class="from" value={from} data-detected={detected} disabled={settings === null} onChange={(event) => session.setFrom(event.currentTarget.value)}>
          <option value="">{from === "" && detected ? text.detected(name(detected)) : text.detect}</option>
          {known.map((code) => <option key={code} value={code}>{name(code)}</option>)}
        </select>
      </label>
      <button type="button" class="swap" aria-label={text.swap} title={text.swap} disabled={!canSwap} onClick={() => session.swap()}>
        <svg viewBox="0 0 20 20" width={20} height={20} aria-hidden="true"><path d="M3 7h13m-4-4 4 4-4 4M17 13H4m4-4-4 4 4 4" /></svg>
      </button>
      <label>
        <span class="visually-hidden">{text.to}</span>
        <select class="to" value={to} disabled={settings === null} onChange={(event) => session.setTo(event.currentTarget.value)}>
          {possible.map((code) => (
            <option key={code} value={code} disabled={settings !== null && source !== "" && source !== code && !canTranslate(settings, source, code)}>{name(code)}</option>
          ))}
        </select>
      </label>
    </div>
  );
}
