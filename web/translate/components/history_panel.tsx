/** Earlier translations. They are kept in this browser only; the reader can forget them or switch this off. */

import "./history_panel.css";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Entry } from "../history.js";
import { languageName } from "../languages.js";
import type { Session } from "../session.js";

const TEXTS = texts({
  en: { title: "History", note: "Kept in this browser only.", keep: "Keep a history", clear: "Forget all", none: "Nothing yet.", off: "The history is off.", remove: "Forget" },
  zh: { title: "历史记录", note: "只保存在此浏览器中。", keep: "保留历史记录", clear: "全部清除", none: "暂无记录。", off: "历史记录已关闭。", remove: "清除" },
});

export function HistoryPanel({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const history = useStore(store, () => store.state.history);
  const keeps = useStore(store, () => store.state.keepsHistory);
  const { settings, language } = store.state;
  const describe = ({ from, to, time }: Entry): string => {
    const when = new Date(time).toLocaleString(language === "zh" ? "zh-CN" : "en", { dateStyle: "medium", timeStyle: "short" });
    return `${from && `${languageName(settings, from, language)} `}→ ${languageName(settings, to, language)} · ${when}`;
  };
  return (
    <section class="panel history" aria-labelledby="history-title">
      <div class="head">
        <h2 id="history-title">{text.title}</h2>
        <span class="muted small">{text.note}</span>
        <label><input type="checkbox" checked={keeps} onChange={(event) => session.setKeepsHistory(event.currentTarget.checked)} />{text.keep}</label>
        <button type="button" class="forget-all" disabled={history.length === 0} onClick={() => session.setHistory([])}>{text.clear}</button>
      </div>
      {history.length === 0 && <p class="muted">{keeps ? text.none : text.off}</p>}
      <ul class="plain-list">
        {history.map((entry) => (
          <li key={entry.time}>
            <button type="button" class="entry" onClick={() => session.restore(entry)}>
              <span lang={entry.from || undefined}>{entry.text}</span>
              <span class="muted" lang={entry.to}>{entry.translation}</span>
              <span class="muted small">{describe(entry)}</span>
            </button>
            <button type="button" aria-label={`${text.remove}: ${entry.text.slice(0, 40)}`} title={text.remove} onClick={() => session.setHistory(history.filter((one) => one !== entry))}>×</button>
          </li>
        ))}
      </ul>
    </section>
  );
}
