/** The buttons for theme and language, and what they change in the document. */

import "./preferences.css";

import { useEffect } from "preact/hooks";

import { type Language, texts } from "./text.js";

export type Theme = "auto" | "light" | "dark";

const TEXTS = texts({
  en: { theme: "Theme", auto: "System", light: "Light", dark: "Dark", other: "中文", other_title: "切换到中文" },
  zh: { theme: "主题", auto: "跟随系统", light: "浅色", dark: "深色", other: "English", other_title: "Switch to English" },
});

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

export interface Preferences {
  language: Language;
  theme: Theme;
}

export interface PreferencesProps extends Preferences {
  onChange: (change: Partial<Preferences>) => void;
}

export function PreferenceButtons({ language, theme, onChange }: PreferencesProps) {
  const text = TEXTS[language];
  const title = `${text.theme}: ${text[theme]}`;
  return (
    <>
      <button type="button" class="theme" aria-label={title} title={title} onClick={() => onChange({ theme: NEXT_THEME[theme] })}>
        <svg viewBox="0 0 16 16" width={16} height={16} aria-hidden="true"><circle cx={8} cy={8} r={6} /><path d="M8 2a6 6 0 0 1 0 12z" /></svg>
      </button>
      <button type="button" class="language" lang={language === "zh" ? "en" : "zh-CN"} title={text.other_title} onClick={() => onChange({ language: otherLanguage(language) })}>
        {text.other}
      </button>
    </>
  );
}

/** Give the document the language and the theme. */
export function usePreferences({ language, theme }: Preferences): void {
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }, [language]);
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
}

export function otherLanguage(language: Language): Language {
  return language === "zh" ? "en" : "zh";
}

/** The theme that is not shown now. */
export function otherTheme(theme: Theme): Theme {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  return dark ? "light" : "dark";
}
