/** The keys of the page, and the dialog that lists them. */

import { useEffect } from "preact/hooks";

import { KeyList, TYPING } from "../../components/key_list.js";
import { otherLanguage, otherTheme } from "../../components/preferences.js";
import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";
import type { Panel } from "../state.js";
import { translatedText } from "../translation.js";
import { copyText } from "./copy_button.js";

const TEXTS = texts({
  en: {
    now: "Translate now", escape: "Close what is open; leave the text", text: "Type a text", swap: "Swap the languages", copy: "Copy the translation", history: "History", code: "API",
    theme: "Light or dark", language: "English or Chinese", words: "In the translation: previous and next word", alternatives: "Alternatives of the word", help: "This list",
  },
  zh: {
    now: "立即翻译", escape: "关闭打开的内容；离开输入框", text: "输入文本", swap: "交换语言", copy: "复制译文", history: "历史记录", code: "API",
    theme: "切换浅色与深色", language: "切换英文与中文", words: "在译文中移到上一个或下一个词", alternatives: "该词的其他译法", help: "显示本列表",
  },
});

const KEYS = [
  [["Ctrl", "Enter"], "now"], [["Esc"], "escape"], [["/"], "text"], [["S"], "swap"], [["C"], "copy"], [["H"], "history"], [["A"], "code"],
  [["T"], "theme"], [["L"], "language"], [["←", "→"], "words"], [["Enter"], "alternatives"], [["?"], "help"],
] as const;

export function Keyboard({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const open = useStore(store, () => store.state.panel === "keys");
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => pressKey(session, event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [session]);
  return (
    <KeyList
      store={store} open={open} onClose={() => store.state.panel === "keys" && store.update({ panel: null })}
      keys={KEYS.map(([keys, name]) => ({ keys, text: text[name] }))}
    />
  );
}

function pressKey(session: Session, event: KeyboardEvent): void {
  const { store } = session;
  const target = event.target instanceof HTMLElement ? event.target : null;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    session.translateNow();
    return;
  }
  if (event.key === "Escape") {
    if (store.state.opened !== null) session.closeWord();
    else if (target?.matches(TYPING)) target.blur();
    else if (store.state.panel !== null) store.update({ panel: null });
    return;
  }
  if (target?.matches(TYPING) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || store.state.panel === "keys") return;
  const action = actions(session)[event.key.toLowerCase()];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

function actions(session: Session): Record<string, () => void> {
  const { store } = session;
  const { state } = store;
  const toggle = (panel: Panel) => (): void => store.update({ panel: state.panel === panel ? null : panel });
  return {
    "/": () => document.getElementById("text")?.focus(),
    "?": toggle("keys"),
    s: () => session.swap(),
    c: () => state.translation !== null && void copyText(translatedText(state.translation)),
    h: toggle("history"),
    a: toggle("code"),
    t: () => store.update({ theme: otherTheme(state.theme) }),
    l: () => store.update({ language: otherLanguage(state.language) }),
  };
}
