/** The menu to share and export: a link to this view, pictures of it, and the translation as files. */

import "./share.css";

import { useRef, useState } from "preact/hooks";

import { htmlOfTranslation } from "../export/html.js";
import { jsonOfTranslation } from "../export/json.js";
import { gifOfDecoding, pngOfElement } from "../export/pictures.js";
import { svgOfElement } from "../export/svg.js";
import type { Session } from "../session.js";
import { texts, useTexts, VIEW_TITLES } from "../text.js";

const TEXTS = texts({
  en: {
    share: "Share", link: "Copy the link to this view", copied: "The link is in the clipboard.", failed: "The export failed",
    svg: "This view as SVG", png: "This view as PNG", gif: "The decoding as an animated GIF", html: "One HTML file with the trace", json: "Tokens and attention as JSON",
    working: "Writing the file…",
  },
  zh: {
    share: "分享", link: "复制当前视图的链接", copied: "链接已复制到剪贴板。", failed: "导出失败",
    svg: "当前视图（SVG）", png: "当前视图（PNG）", gif: "解码过程（GIF 动画）", html: "含完整计算记录的单个 HTML 文件", json: "词元与注意力（JSON）",
    working: "正在生成文件……",
  },
});

type Format = "svg" | "png" | "gif" | "html" | "json";

export function Share({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const titles = useTexts(store, VIEW_TITLES);
  const [message, setMessage] = useState("");
  const menu = useRef<HTMLDetailsElement>(null);

  const write = async (format: Format): Promise<Blob> => {
    const view = document.getElementById("view");
    const app = document.getElementById("app");
    if (view === null || app === null) throw new Error("the page has no view");
    const title = `${titles[store.state.view]}: ${session.shown?.text ?? ""}`;
    switch (format) {
      case "svg": return new Blob([svgOfElement(view, title)], { type: "image/svg+xml" });
      case "png": return pngOfElement(view, title);
      case "gif": return gifOfDecoding(session, app, title);
      case "html": return htmlOfTranslation(session);
      case "json": return jsonOfTranslation(session);
    }
  };
  const save = async (format: Format): Promise<void> => {
    setMessage(text.working);
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await write(format));
      link.download = `heedful-${store.state.view}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      setMessage("");
      menu.current?.removeAttribute("open");
    } catch (error) {
      setMessage(`${text.failed}: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(location.href);
      setMessage(text.copied);
    } catch {
      setMessage(location.href); // no clipboard here: the link can be copied by hand
    }
  };
  return (
    <details class="share" ref={menu} onKeyDown={(event) => event.key === "Escape" && menu.current?.removeAttribute("open")}>
      <summary>{text.share}</summary>
      <div class="menu">
        <button type="button" onClick={() => void copy()}>{text.link}</button>
        {(["png", "svg", "gif", "html", "json"] as const).map((format) => (
          <button key={format} type="button" data-format={format} disabled={session.shown === null} onClick={() => void save(format)}>{text[format]}</button>
        ))}
        <p class="small muted" role="status">{message}</p>
      </div>
    </details>
  );
}
