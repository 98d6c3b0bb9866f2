/** The keys of the page, and the dialog that lists them. */

import { useEffect } from "preact/hooks";

import { KeyList, TYPING } from "../../components/key_list.js";
import { otherLanguage, otherTheme } from "../../components/preferences.js";
import { MEAN_OF_HEADS } from "../attention_axes.js";
import { chosenHead, chosenLayer, numLayers, stackOf } from "../chosen.js";
import { currentStep, type Session } from "../session.js";
import { useStore, VIEWS } from "../state.js";
import { texts, useTexts, VIEW_TITLES } from "../text.js";

const TEXTS = texts({
  en: {
    text: "Type a sentence", leave: "Leave the text", step: "Previous and next step", layer: "Next and previous layer",
    head: "Previous and next head", play: "Play and pause the decoding", words: "Subwords or whole words", theme: "Light or dark", language: "English or Chinese",
    views: "The views, in the order of their tabs", help: "This list", tab: "Move to the next control; the boxes of the map and the cells of matrices are controls too",
  },
  zh: {
    text: "输入句子", leave: "离开输入框", step: "上一步、下一步", layer: "下一层、上一层",
    head: "上一个头、下一个头", play: "播放或暂停解码过程", words: "切换子词与整词", theme: "切换浅色与深色", language: "切换英文与中文",
    views: "按标签顺序切换视图", help: "显示本列表", tab: "移到下一个控件；结构图中的方框和矩阵的单元格也是控件",
  },
});

const KEYS = [
  [["/"], "text"], [["Esc"], "leave"], [["←", "→"], "step"], [["↑", "↓"], "layer"], [["[", "]"], "head"], [["P"], "play"],
  [["W"], "words"], [["T"], "theme"], [["L"], "language"], [["1", "…", "9"], "views"], [["Tab"], "tab"], [["?"], "help"],
] as const;

/** `help.open` in the state's options opens the dialog. */
export const HELP = "help.open";

export function Keyboard({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const titles = useTexts(store, VIEW_TITLES);
  const open = useStore(store, () => store.state.options[HELP] === "1");
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => pressKey(session, event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [session]);
  const note = VIEWS.slice(0, 9).map((view, index) => `${index + 1} ${titles[view]}`).join(", ");
  return (
    <KeyList
      store={store} open={open} onClose={() => store.setOption(HELP, undefined)}
      keys={KEYS.map(([keys, name]) => ({ keys, text: text[name], note: name === "views" ? note : undefined }))}
    />
  );
}

function pressKey(session: Session, event: KeyboardEvent): void {
  const { store } = session;
  const target = event.target instanceof HTMLElement ? event.target : null;
  if (target?.matches(TYPING)) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const inRange = target?.matches("input[type=range]") && event.key.startsWith("Arrow");
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || inRange || store.state.options[HELP] === "1") return;
  const action = actions(session)[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

function actions(session: Session): Record<string, () => void> {
  const { store, shown, model } = session;
  const { state } = store;
  const stack = stackOf(state.attention);
  const moveStep = (by: number): void => {
    const last = (shown?.numSteps ?? 1) - 1;
    store.update({ step: Math.max(0, Math.min(last, currentStep(session) + by)) });
  };
  const moveLayer = (by: number): void => {
    if (model !== null) store.update({ layer: Math.max(0, Math.min(numLayers({ model }, stack) - 1, chosenLayer({ model }, state, stack) + by)) });
  };
  const moveHead = (by: number): void => {
    const count = model?.manifest.model.num_heads ?? 1;
    const { [MEAN_OF_HEADS]: _, ...options } = state.options;
    if (model !== null) store.update({ head: (chosenHead({ model }, state) + by + count) % count, options });
  };
  const found: Record<string, () => void> = {
    "/": () => document.getElementById("text")?.focus(),
    "?": () => store.setOption(HELP, "1"),
    ArrowLeft: () => moveStep(-1),
    ArrowRight: () => moveStep(1),
    ArrowUp: () => moveLayer(1),
    ArrowDown: () => moveLayer(-1),
    "[": () => moveHead(-1),
    "]": () => moveHead(1),
    p: () => session.playback.toggle(),
    w: () => store.update({ words: !state.words, query: -1, key: -1 }),
    t: () => store.update({ theme: otherTheme(state.theme) }),
    l: () => store.update({ language: otherLanguage(state.language) }),
  };
  for (const [index, view] of VIEWS.slice(0, 9).entries()) found[String(index + 1)] = () => store.update({ view });
  return found;
}
