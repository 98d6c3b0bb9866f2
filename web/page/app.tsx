/** The page: title bar, the sentence and its translation, the map of the model, and the lens on what is chosen. */

import { usePreferences } from "../components/preferences.js";
import { Keyboard } from "./components/keyboard.js";
import { ModelMap } from "./components/map.js";
import { Sentence } from "./components/sentence.js";
import { TitleBar } from "./components/title_bar.js";
import type { Session } from "./session.js";
import { useStore } from "./state.js";
import { Lens } from "./views/lens.js";
import { Walk } from "./walk/walk.js";

export function App({ session }: { session: Session }) {
  const { store } = session;
  const language = useStore(store, () => store.state.language);
  const theme = useStore(store, () => store.state.theme);
  usePreferences({ language, theme });
  return (
    <>
      <TitleBar session={session} />
      <Sentence session={session} />
      <div class="columns">
        <aside class="map"><ModelMap session={session} /></aside>
        <Lens session={session} />
      </div>
      <Walk store={store} />
      <Keyboard session={session} />
    </>
  );
}
