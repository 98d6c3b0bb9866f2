/** The command line that asks the server for the same translation. */

export const INTERFACES = ["heedful", "LibreTranslate", "DeepL", "OpenAI"] as const;
export type Interface = (typeof INTERFACES)[number];

export interface Shown {
  text: string;
  /** Empty: detect. */
  from: string;
  to: string;
  needsKey: boolean;
}

/** `address`: that of the page. */
export function curl(name: Interface, { needsKey, ...shown }: Shown, address: string): string {
  const [path, body] = request(name, shown);
  const scheme = name === "DeepL" ? "DeepL-Auth-Key" : "Bearer";
  const key = needsKey ? ` -H "Authorization: ${scheme} $API_KEY"` : "";
  return `curl ${new URL(path, address)} -H 'Content-Type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

function request(name: Interface, { text, from, to }: Omit<Shown, "needsKey">): [path: string, body: unknown] {
  switch (name) {
    case "heedful": return ["api/v1/translate", { text, ...(from && { source: from }), target: to, alternatives: 3, align: true }];
    case "LibreTranslate": return ["translate", { q: text, source: from || "auto", target: to }];
    case "DeepL": return ["v2/translate", { text: [text], ...(from && { source_lang: from.toUpperCase() }), target_lang: to.toUpperCase() }];
    case "OpenAI": return ["v1/chat/completions", { model: `${from || "auto"}-${to}`, messages: [{ role: "user", content: text }] }];
  }
}

/** A word for a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
