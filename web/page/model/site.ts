/** site.json, and the models that it names: in a worker of this page, on the server that sent the page, or in the page itself. */

import { load, type LoadOptions, type RemoteModel } from "../../engine/src/index.js";
import type { State } from "../state.js";
import { type Recording, RecordedModel } from "./recording.js";
import { ServerModel } from "./server_model.js";

export interface SiteModel {
  name: string;
  title: string;
  /** Folder of model.json, relative to site.json. */
  directory: string;
  /** wasm: the engine runs in the page; server: the server traces, for models that the engine does not run; recorded: one trace, in the page's file. */
  kind: "wasm" | "server" | "recorded";
  /** Language pairs; null where a language is not known. */
  directions: { source: string | null; target: string | null }[];
  bytes: number;
  parameters: number;
  /** Whether the folder has checkpoints/checkpoints.json. */
  has_checkpoints?: boolean;
}

export interface Example {
  text: string;
  to?: string;
  model?: string;
}

export interface Site {
  format_version: 1;
  models: SiteModel[];
  default: string;
  examples: Example[];
}

/** What the page needs of a model; the engine's RemoteModel and ServerModel both have it. Only the engine records its beam search. */
export type PageModel = Pick<
  RemoteModel,
  "manifest" | "shape" | "translate" | "trace" | "pieces" | "sourceIds" | "encodeTarget" | "close"
> & Partial<Pick<RemoteModel, "beamTree">>;

export const RECORDING_ID = "recording";

/** What an HTML file with a recorded translation holds (web/page/export/html.ts). */
interface RecordedPage {
  recording: Recording;
  /** The fragment of the view that was exported. */
  address: string;
}

function recordedPage(): RecordedPage | null {
  const element = document.getElementById(RECORDING_ID);
  return element === null ? null : (JSON.parse(element.textContent ?? "") as RecordedPage);
}

/** The fragment to begin with: that of the address, or of the view that was recorded. */
export function firstAddress(): string {
  return location.hash || (recordedPage()?.address ?? "");
}

export const EXAMPLE_MODEL = "digit-reversal";
/** The example of a training run, which comes with the page: heedful/web/examples. */
const EXAMPLE: SiteModel = {
  name: EXAMPLE_MODEL, title: "Digit reversal", directory: `examples/${EXAMPLE_MODEL}/`, kind: "wasm", directions: [{ source: null, target: null }],
  bytes: 41320, parameters: 22304, has_checkpoints: true,
};
const EXAMPLE_TEXT = "4 7 1 3 9";

export async function loadSite(url: URL): Promise<Site> {
  const recorded = recordedPage();
  if (recorded !== null) return siteOfRecording(recorded.recording);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status} ${response.statusText}`);
  const site = (await response.json()) as Site;
  if (site.format_version !== 1) throw new Error(`${url} has a format that this page does not know`);
  if (site.models.length === 0) throw new Error(`${url} names no model`);
  if (site.models.some(({ name }) => name === EXAMPLE_MODEL)) return site;
  return { ...site, models: [...site.models, EXAMPLE], examples: [...site.examples, { text: EXAMPLE_TEXT, model: EXAMPLE_MODEL }] };
}

function siteOfRecording({ manifest, title, text, to }: Recording): Site {
  const { name, directions } = manifest;
  const model: SiteModel = { name, title, directory: "", kind: "recorded", directions, bytes: 0, parameters: 0 };
  return { format_version: 1, models: [model], default: name, examples: [{ text, to }] };
}

const HAN = /\p{Script=Han}/u;

/** The model named `name`; else the first that translates into `to` from Chinese or from another language, as the text is; else the default. */
export function chooseModel(site: Site, { model: name, to, text }: Pick<State, "model" | "to" | "text">): SiteModel {
  const translates = ({ directions }: SiteModel, isRead: (source: string | null) => boolean): boolean =>
    to !== "" && directions.some(({ source, target }) => target === to && isRead(source));
  const isChinese = HAN.test(text);
  const found =
    site.models.find((model) => model.name === name) ??
    site.models.find((model) => translates(model, (source) => source !== null && (source === "zh") === isChinese)) ??
    site.models.find((model) => translates(model, () => true)) ??
    site.models.find((model) => model.name === site.default) ??
    site.models[0];
  if (found === undefined) throw new Error("the site has no model");
  return found;
}

export async function openModel(model: SiteModel, options: LoadOptions = {}): Promise<PageModel> {
  if (model.kind === "recorded") {
    const recorded = recordedPage();
    if (recorded === null) throw new Error("the page holds no recording");
    return RecordedModel.open(recorded.recording);
  }
  const url = new URL(`${model.directory}model.json`, document.baseURI);
  return model.kind === "server" ? ServerModel.load(url) : load(url, options);
}
