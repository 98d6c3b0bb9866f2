/** What went wrong, and what happens next. */

import { useStore } from "../../components/store.js";
import { type Language, texts, useTexts } from "../../components/text.js";
import { characters, type Problem } from "../server.js";
import type { Session } from "../session.js";
import type { State } from "../state.js";

const TEXTS = texts({
  en: {
    offline: "The server cannot be reached.", busy: "The server is busy.", retry: (seconds: number) => `Trying again in ${seconds} s.`, now: "Try now",
    too_long: (count: string, limit: string) => `The text has ${count} characters, and the server accepts ${limit}. Shorten it, or translate it as a file.`,
    no_key: "This server needs an API key.", key: (message: string) => `The server refuses the API key: ${message}`, refused: (message: string) => `The server refuses the text: ${message}`,
  },
  zh: {
    offline: "无法连接服务器。", busy: "服务器繁忙。", retry: (seconds: number) => `${seconds} 秒后重试。`, now: "立即重试",
    too_long: (count: string, limit: string) => `文本有 ${count} 个字符，服务器最多接受 ${limit} 个。请缩短文本，或作为文件翻译。`,
    no_key: "此服务器需要 API 密钥。", key: (message: string) => `服务器拒绝了该 API 密钥：${message}`, refused: (message: string) => `服务器拒绝了该文本：${message}`,
  },
});

export function Notice({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const problem = useStore(store, () => store.state.problem);
  const retryIn = useStore(store, () => store.state.retryIn);
  if (problem === null) return null;
  return (
    <p class="problem" role="alert" data-problem={problem.kind}>
      {message(problem, store.state, text)} {retryIn !== null && <span class="number">{text.retry(retryIn)}</span>}{" "}
      {retryIn !== null && <button type="button" onClick={() => session.again()}>{text.now}</button>}
    </p>
  );
}

function message(problem: Problem, state: State, text: (typeof TEXTS)[Language]): string {
  switch (problem.kind) {
    case "offline": return text.offline;
    case "busy": return text.busy;
    case "key": return state.key === "" ? text.no_key : text.key(problem.message);
    case "too_long": return text.too_long(characters(state.text).toLocaleString(state.language), (state.settings?.max_stream_characters ?? 0).toLocaleString(state.language));
    default: return text.refused(problem.message);
  }
}
