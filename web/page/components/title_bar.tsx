/** The title, the model, and the switches of the whole page: language, theme, subwords or words, help. */

import "./title_bar.css";

import { PreferenceButtons } from "../../components/preferences.js";
import type { Session } from "../session.js";
import { useSession } from "../session.js";
import { texts, useTexts } from "../text.js";
import { WalkButton } from "../walk/walk.js";
import { HELP } from "./keyboard.js";
import { Share } from "./share.js";

const TEXTS = texts({
  en: {
    subtitle: "Inside a translation", model: "Model", words: "Whole words", help: "Keyboard help",
  },
  zh: {
    subtitle: "看清翻译的内部", model: "模型", words: "按整词显示", help: "键盘操作说明",
  },
});

export function TitleBar({ session }: { session: Session }) {
  useSession(session);
  const { store, site } = session;
  const text = useTexts(store, TEXTS);
  const { theme, words, language } = store.state;
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
      <PreferenceButtons language={language} theme={theme} onChange={(change) => store.update(change)} />
      <WalkButton store={store} />
      <Share session={session} />
      <button type="button" class="help" aria-label={text.help} title={text.help} onClick={() => store.setOption(HELP, "1")}>?</button>
    </header>
  );
}
