/** The page: title bar, languages, the text and its translation, and panels below them. */

import { usePreferences } from "../components/preferences.js";
import { useStore } from "../components/store.js";
import { CodePanel } from "./components/code_panel.js";
import { Documents, DropArea } from "./components/documents.js";
import { HistoryPanel } from "./components/history_panel.js";
import { KeyField } from "./components/key_field.js";
import { Keyboard } from "./components/keyboard.js";
import { Languages } from "./components/languages.js";
import { Notice } from "./components/notice.js";
import { OtherTranslations } from "./components/other_translations.js";
import { SourcePane } from "./components/source_pane.js";
import { TargetPane } from "./components/target_pane.js";
import { TitleBar } from "./components/title_bar.js";
import type { Session } from "./session.js";

export function App({ session }: { session: Session }) {
  const { store } = session;
  const language = useStore(store, () => store.state.language);
  const theme = useStore(store, () => store.state.theme);
  const panel = useStore(store, () => store.state.panel);
  usePreferences({ language, theme });
  return (
    <>
      <TitleBar session={session} />
      <main class="translator">
        <KeyField session={session} />
        <Notice session={session} />
        <Languages session={session} />
        <div class="panes">
          <SourcePane session={session} />
          <TargetPane session={session} />
        </div>
        <OtherTranslations session={session} />
        <Documents session={session} />
        {panel === "history" && <HistoryPanel session={session} />}
        {panel === "code" && <CodePanel session={session} />}
      </main>
      <DropArea session={session} />
      <Keyboard session={session} />
    </>
  );
}
