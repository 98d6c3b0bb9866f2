/** Says that the model is changed, and which of the two the views show. */

import "./changed_banner.css";

import { type Session, useSession } from "../session.js";
import { texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    title: "Changes to the model", changed: (count: number) => (count === 1 ? "The model has one change." : `The model has ${count} changes.`), shows: "All views show",
    base: "the original", run_changed: "the changed model", edit: "Edit", none: "Remove all",
  },
  zh: { title: "对模型的改动", changed: (count: number) => `模型有 ${count} 处改动。`, shows: "所有视图显示", base: "原模型", run_changed: "改动后的模型", edit: "修改", none: "全部撤销" },
});

export function ChangedBanner({ session }: { session: Session }) {
  useSession(session);
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const { interventions, run, view } = store.state;
  if (interventions.length === 0) return null;
  return (
    <div class={`changed-banner controls ${run}`} role="region" aria-label={text.title} data-run={run}>
      <span>{text.changed(interventions.length)}</span>
      <span class="controls" role="group" aria-label={text.shows}>
        {text.shows}
        <button type="button" aria-pressed={run === "base"} onClick={() => store.update({ run: "base", step: -1 })}>{text.base}</button>
        <button type="button" aria-pressed={run === "changed"} onClick={() => store.update({ run: "changed", step: -1 })}>{text.run_changed}</button>
      </span>
      {view !== "what_if" && <button type="button" onClick={() => store.update({ view: "what_if" })}>{text.edit}</button>}
      <button type="button" onClick={() => store.update({ interventions: [], run: "base", step: -1 })}>{text.none}</button>
    </div>
  );
}
