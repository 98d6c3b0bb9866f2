/** The same translation from a program: one command for each HTTP interface of the server. */

import "./code_panel.css";

import { useState } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import { curl, INTERFACES, type Interface } from "../curl.js";
import type { Session } from "../session.js";
import { CopyButton } from "./copy_button.js";

const TEXTS = texts({
  en: { title: "The same from a program", kind: "Interface", copy: "Copy", copied: "Copied", docs: "All interfaces" },
  zh: { title: "用程序完成同样的翻译", kind: "接口", copy: "复制", copied: "已复制", docs: "全部接口" },
});
const EXAMPLE = "Good morning.";

export function CodePanel({ session: { store } }: { session: Session }) {
  const text = useTexts(store, TEXTS);
  const [chosen, choose] = useState<Interface>("heedful");
  const value = useStore(store, () => store.state.text);
  const from = useStore(store, () => store.state.from);
  const to = useStore(store, () => store.state.to);
  const settings = useStore(store, () => store.state.settings);
  const command = curl(chosen, { text: value.trim() || EXAMPLE, from, to, needsKey: settings?.needs_key === true }, document.baseURI);
  return (
    <section class="panel code" aria-labelledby="code-title">
      <div class="head">
        <h2 id="code-title">{text.title}</h2>
        <label>
          {text.kind}
          <select value={chosen} onChange={(event) => choose(INTERFACES.find((name) => name === event.currentTarget.value) ?? "heedful")}>
            {INTERFACES.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <CopyButton class="copy-code" label={text.copy} copied={text.copied} content={() => command} />
        <a href="docs">{text.docs}</a>
      </div>
      <pre tabIndex={0} data-command={command}>{command}</pre>
    </section>
  );
}
