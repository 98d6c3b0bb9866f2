/** The title, the model, and the switches of the whole page: language, theme, subwords or words. */

import type { Session } from "../session.js";
import { useSession } from "../session.js";
import type { Theme } from "../state.js";
import { texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    title: "Heedful: inside a translation", model: "Model", words: "Whole words", theme: "Theme", auto: "System", light: "Light", dark: "Dark",
    other: "中文", other_title: "切换到中文",
  },
  zh: {
    title: "Heedful：看见翻译的内部", model: "模型", words: "按整词显示", theme: "主题", auto: "跟随系统", light: "浅色", dark: "深色",
    other: "English", other_title: "Switch to English",
  },
});

export function TitleBar({ session }: { session: Session }) {
  useSession(session);
  const { store, site } = session;
  const text = useTexts(store, TEXTS);
  const { theme, words, language } = store.state;
  return (
    <header class="bar">
      <h1>{text.title}</h1>
      {site && site.models.length > 1 && (
        <label>
          <span class="visually-hidden">{text.model}</span>
          <select
            value={session.siteModel?.name ?? ""}
            onChange={(event) => store.update({ model: event.currentTarget.value, prefix: [], interventions: [], run: "base", step: -1, layer: -1, head: 0 })}
          >
            {site.models.map(({ name, title }) => <option key={name} value={name}>{title}</option>)}
          </select>
        </label>
      )}
      <button type="button" aria-pressed={words} onClick={() => store.update({ words: !words, query: -1, key: -1 })}>{text.words}</button>
      <label>
        <span class="visually-hidden">{text.theme}</span>
        <select value={theme} onChange={(event) => store.update({ theme: event.currentTarget.value as Theme })}>
          {(["auto", "light", "dark"] as const).map((name) => <option key={name} value={name}>{text[name]}</option>)}
        </select>
      </label>
      <button type="button" lang={language === "zh" ? "en" : "zh-CN"} title={text.other_title} onClick={() => store.update({ language: language === "zh" ? "en" : "zh" })}>
        {text.other}
      </button>
    </header>
  );
}
