/** The word alignment that cross-attention gives: soft as a matrix, hard as links, and in Pharaoh notation. */

import "./alignment.css";

import { useMemo, useState } from "preact/hooks";

import { attentionPlaces, chosenAttention, numTags } from "../attention_axes.js";
import { attentionName } from "../chosen.js";
import { type AlignmentSource, alignmentOf, hardLinks, pharaoh } from "../measures/alignment.js";
import { fullColour, meanOverHeads } from "../measures/heads.js";
import { type Group, groups, groupWeights } from "../pieces.js";
import { currentStep, type Run, type Session, usePresentTensors } from "../session.js";
import { TERMS, texts, useTexts } from "../text.js";
import { Arcs } from "./arcs.js";
import { LinkedMatrix } from "./linked_matrix.js";

const TEXTS = texts({
  en: {
    title: "Alignment", intro: "Which source token each token of the translation belongs to, as cross-attention says: soft are the weights, hard is the largest of each row.",
    from: "Read from", model: "the model's choice", predicts: "the chosen head, where the token is predicted", reads: "the chosen head, where the token is read",
    place: (layer: number, head: string, offset: string) => `Layer ${layer}, ${head}, ${offset}.`, head: (head: number) => `head ${head}`, mean: "mean of all heads",
    at_predicts: "the step that predicts the token", at_reads: "the step that reads the token",
    soft: "Soft alignment", hard: "Hard alignment", notation: "Pharaoh notation", copy: "Copy", copied: "Copied", download: "Download",
    pairs: "Pairs source-target, counted from 0 without tag and end token. In subwords this is what heedful translate --align writes.",
    words: "Pairs source-target, counted from 0, over the words and punctuation marks above.",
  },
  zh: {
    title: "对齐", intro: "译文的每个词元对应源句的哪个词元，由交叉注意力给出：软对齐是权重，硬对齐取每行的最大值。",
    from: "取自", model: "模型选定的头", predicts: "当前的头，预测该词元的一步", reads: "当前的头，读入该词元的一步",
    place: (layer: number, head: string, offset: string) => `第 ${layer} 层，${head}，${offset}。`, head: (head: number) => `第 ${head} 个头`, mean: "所有头的平均",
    at_predicts: "取预测该词元的一步", at_reads: "取读入该词元的一步",
    soft: "软对齐", hard: "硬对齐", notation: "Pharaoh 格式", copy: "复制", copied: "已复制", download: "下载",
    pairs: "“源-译”序号对，从 0 开始，不计语言标记和结束标记。按子词显示时与 heedful translate --align 的输出相同。",
    words: "“源-译”序号对，从 0 开始，按上面的词和标点计数。",
  },
});

const SOURCE = "attention.alignment";

/** Groups of a part of a sentence, with the indices that they have in the part. */
function part(all: readonly Group[], start: number, end: number): Group[] {
  return all.filter((group) => group.start >= start && group.end <= end).map((group) => ({ ...group, start: group.start - start, end: group.end - start }));
}

function shift(all: readonly Group[], by: number): Group[] {
  return all.map((group) => ({ ...group, start: group.start + by, end: group.end + by }));
}

export function AlignmentPanel({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [copied, setCopied] = useState("");
  const chosen = chosenAttention(run.model, state);
  const place = attentionPlaces(run.model).find(({ kind }) => kind === "cross") ?? chosen.place;
  const recorded = run.model.manifest.alignment;
  const option = state.options[SOURCE] ?? "model";
  const own: AlignmentSource = { layer: chosen.layer, head: chosen.isMean ? null : chosen.head, offset: option === "reads" ? 1 : 0 };
  const source = option === "model" ? { ...recorded, layer: Math.min(recorded.layer, place.numLayers - 1) } : own;
  const name = `${attentionName(place.kind, source.layer)}.weights`;
  const tensor = usePresentTensors(session, run, [name])?.get(name);
  const tags = numTags(run.model);
  const found = useMemo(() => {
    if (tensor === undefined) return null;
    const [numHeads = 1, numSteps = 1, numKeys = 1] = tensor.shape;
    const size = numSteps * numKeys;
    const weights = source.head === null ? meanOverHeads(tensor.values, numHeads) : tensor.values.subarray(source.head * size, (source.head + 1) * size);
    const alignment = alignmentOf(weights, numSteps, numKeys, source.offset, tags);
    const sources = part(groups(run.sourcePieces, { words: state.words }), tags, run.source.length - 1);
    const targets = part(groups(run.chosenPieces, { words: state.words }), 0, alignment.numTargets);
    const soft = groupWeights(alignment.weights, alignment.numSources, targets, sources);
    const links = hardLinks({ weights: soft, numTargets: targets.length, numSources: sources.length });
    const hard = new Float32Array(soft.length);
    for (const [s, t] of links) hard[t * sources.length + s] = 1;
    return { sources, targets, soft, hard, links: pharaoh(links) };
  }, [tensor, source.head, source.offset, run, state.words, tags]);
  if (found === null) return <p class="muted computing" role="status">{terms.computing}</p>;

  const { sources, targets, soft, hard, links } = found;
  const step = currentStep(session);
  const visible = targets.filter(({ start }) => start <= step).length;
  const [queries, keys] = [shift(targets, 1), shift(sources, tags)];
  const headName = source.head === null ? text.mean : text.head(source.head + 1);
  const copy = (): void => {
    navigator.clipboard.writeText(links).then(() => setCopied(links), () => getSelection()?.selectAllChildren(document.getElementById("pharaoh") ?? document.body));
  };
  return (
    <section class="alignment">
      <h3>{text.title}</h3>
      <p class="small muted">{text.intro}</p>
      <div class="controls">
        <label>
          {text.from}
          <select class="alignment-source" value={option} onChange={(event) => store.setOption(SOURCE, event.currentTarget.value === "model" ? undefined : event.currentTarget.value)}>
            {(["model", "predicts", "reads"] as const).map((value) => <option key={value} value={value}>{text[value]}</option>)}
          </select>
        </label>
        <span class="small muted">{text.place(source.layer + 1, headName, source.offset === 1 ? text.at_reads : text.at_predicts)}</span>
      </div>
      <div class="attention-pair">
        <div class="attention-arcs">
          <h4>{text.hard}</h4>
          <Arcs
            store={store} title={text.hard} queries={queries} keys={keys} querySide="target" keySide="source" predicted={null} queryAxis={terms.target}
            keyAxis={terms.source} weights={hard} threshold={0.5} visibleRows={visible} selected={null}
            onSelect={(row) => store.update({ step: targets[row]?.start ?? -1 })}
          />
        </div>
        <div class="attention-soft">
          <h4>{text.soft}</h4>
          <LinkedMatrix
            store={store} title={text.soft} values={soft} scale={{ kind: "sequential", max: fullColour(soft, targets.length, sources.length) }} queries={queries} keys={keys} querySide="target" keySide="source"
            rowAxis={terms.target} columnAxis={terms.source} visibleRows={visible}
          />
        </div>
      </div>
      <div class="pharaoh">
        <h4>{text.notation}</h4>
        <code id="pharaoh" data-pharaoh={links} tabIndex={0}>{links}</code>
        <div class="controls">
          <button type="button" onClick={copy}>{copied === links ? text.copied : text.copy}</button>
          <a class="button" href={`data:text/plain;charset=utf-8,${encodeURIComponent(`${links}\n`)}`} download="alignment.txt">{text.download}</a>
        </div>
        <p class="small muted">{state.words ? text.words : text.pairs}</p>
      </div>
    </section>
  );
}
