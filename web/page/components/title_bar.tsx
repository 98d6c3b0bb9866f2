/** The title, the model, and the switches of the whole page: language, theme, subwords or words, help. */

import "./title_bar.css";

import type { Session } from "../session.js";
import { useSession } from "../session.js";
import type { Theme } from "../state.js";
import { texts, useTexts } from "../text.js";
import { WalkButton } from "../walk/walk.js";
import { HELP } from "./keyboard.js";
import { Share } from "./share.js";

const TEXTS = texts({
  en: {
    subtitle: "Inside a translation", model: "Model", words: "Whole words", theme: "Theme", auto: "System", light: "Light", dark: "Dark",
    other: "中文", other_title: "切换到中文", help: "Keyboard help",
  },
  zh: {
    subtitle: "看清翻译的内部", model: "模型", words: "按整词显示", theme: "主题", auto: "跟随系统", light: "浅色", dark: "深色",
    other: "English", other_title: "Switch to English", help: "键盘操作说明",
  },
});

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

export function TitleBar({ session }: { session: Session }) {
  useSession(session);
  const { store, site } = session;
  const text = useTexts(store, TEXTS);
  const { theme, words, language } = store.state;
  const themeTitle = `${text.theme}: ${text[theme]}`;
  return (
    <header class="bar">
      <h1>Heedful<span class="subtitle">{text.subtitle}</span></h1>
      {site && site.models.length > 1 && (
        <label>
          <span class="visually-hidden">{text.model}</span>
          <select class="model" value={session.siteModel?.name ?? ""} onChange={(event) => session.choose(event.currentTarget.value)}>
            {site.models.map(({ name, title }) => <option key={name} value={name}>{title || name}</option>)}
          </select>
        </label>
      )}
      <button type="button" aria-pressed={words} onClick={() => store.update({ words: !words, query: -1, key: -1 })}>{text.words}</button>
      <button type="button" class="theme" aria-label={themeTitle} title={themeTitle} onClick={() => store.update({ theme: NEXT_THEME[theme] })}>
        <svg viewBox="0 0 16 16" width={16} height={16} aria-hidden="true"><circle cx={8} cy={8} r={6} /><path d="M8 2a6 6 0 0 1 0 12z" /></svg>
      </button>
      <button type="button" lang={language === "zh" ? "en" : "zh-CN"} title={text.other_title} onClick={() => store.update({ language: language === "zh" ? "en" : "zh" })}>
        {text.other}
      </button>
      <WalkButton store={store} />
      <Share session={session} />
      <button type="button" class="help" aria-label={text.help} title={text.help} onClick={() => store.setOption(HELP, "1")}>?</button>
    </header>
  );
}
