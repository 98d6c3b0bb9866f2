/** Documents: dropped on the page or chosen, translated by the server, and downloaded from here. */

import "./documents.css";

import { useEffect, useState } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { type Language, texts, useTexts } from "../../components/text.js";
import { languageName } from "../languages.js";
import type { Session } from "../session.js";
import type { DocumentJob, State } from "../state.js";

const TEXTS = texts({
  en: {
    title: "Files", translating: "Translating…", download: "Download", remove: "Remove", drop: "Drop files to translate them",
    too_long: (limit: string) => `The file is larger than ${limit} MB.`, format: "This format is not supported; supported are",
    offline: "The server cannot be reached.", busy: "The server is busy; try again later.", key: "The server needs a valid API key.", refused: (message: string) => `Not translated: ${message}`,
  },
  zh: {
    title: "文件", translating: "正在翻译……", download: "下载", remove: "移除", drop: "松开即可翻译文件",
    too_long: (limit: string) => `文件超过 ${limit} MB。`, format: "不支持此格式；支持的格式有",
    offline: "无法连接服务器。", busy: "服务器繁忙，请稍后再试。", key: "服务器需要有效的 API 密钥。", refused: (message: string) => `未翻译：${message}`,
  },
});

export function Documents({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const documents = useStore(store, () => store.state.documents);
  if (documents.length === 0) return null;
  return (
    <section class="panel documents">
      <h2>{text.title}</h2>
      <ul class="plain-list">
        {documents.map((job) => (
          <li key={job.id} data-status={job.status}>
            <span class="name">{job.name} <span class="muted">→ {languageName(store.state.settings, job.to, store.state.language)}</span></span>
            {job.status === "translating" && <span class="muted" role="status">{text.translating}</span>}
            {job.status === "failed" && <span class="failed" role="alert">{problem(job, store.state, text)}</span>}
            {job.status === "done" && <a class="button download" href={job.url} download={translatedName(job)}>{text.download}</a>}
            <button type="button" onClick={() => session.removeDocument(job.id)}>{text.remove}</button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function problem({ problem }: DocumentJob, { settings, language }: State, text: (typeof TEXTS)[Language]): string {
  switch (problem?.kind) {
    case "too_long": return text.too_long(((settings?.max_document_bytes ?? 0) / 1e6).toLocaleString(language, { maximumFractionDigits: 1 }));
    case "format": return `${text.format} ${problem.message}`;
    case "offline": case "busy": case "key": return text[problem.kind];
    default: return text.refused(problem?.message ?? "");
  }
}

/** notes.de.md for notes.md */
function translatedName({ name, to }: DocumentJob): string {
  return /\.[^.]+$/.test(name) ? name.replace(/(\.[^.]+)$/, `.${to}$1`) : `${name}.${to}`;
}

/** Takes files that are dropped anywhere on the page. */
export function DropArea({ session }: { session: Session }) {
  const text = useTexts(session.store, TEXTS);
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") === true;
    const over = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      setOver(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      session.translateFiles(event.dataTransfer?.files ?? []);
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [session]);
  return isOver ? <div class="drop-area">{text.drop}</div> : null;
}
