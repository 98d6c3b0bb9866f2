/** What if a part of the model were missing: the changes, both translations side by side, and the probabilities before and after. */

import "./what_if.css";

import { useState } from "preact/hooks";

import type { Intervention } from "../../engine/src/index.js";
import { axesOf, chosenAttention, groupAt } from "../attention_axes.js";
import { attentionName, stackOf } from "../chosen.js";
import { ComparedProbabilities, ComparedTranslations, useCompared } from "../components/compared_runs.js";
import { HeadChooser } from "../components/head_chooser.js";
import { HeadRanking } from "../components/head_ranking.js";
import { LinkedMatrix } from "../components/linked_matrix.js";
import { SWITCH_TEXTS, Switches, usePlaceName } from "../components/switches.js";
import { preset, PRESETS, same, type Sizes } from "../interventions.js";
import type { PageModel } from "../model/site.js";
import { type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    lead: "Switch off a part of the model and translate again: what changes shows what the part was for. The paper removes parts in the same way, but trains each variant (section 6.2, table 3); here the trained model loses a part.",
    presets: "Examples", no_positions: "No positions", no_cross_attention: "No cross-attention", uniform_cross_attention: "Uniform cross-attention",
    one_head: "Only head 1", unscaled: "No ÷ √d_k", no_feed_forward: "No feed-forward", changes: "Changes", reset: "Reset", remove_change: "Remove this change:",
    server: "The server runs this model with torch, which has no such changes; only the beginning of the translation can be chosen.",
    weight: "Set one attention weight by hand", weight_hint: "Choose a head and a cell. The other weights of the row are scaled so that the row still adds up to 1.",
    original: "original weight", set: "New weight", attends: "attends to", query: "attends", reads: "reads", key: "attended to",
    prefix: "Begin the translation with", prefix_set: "Set", prefix_remove: "Let the model choose", unscaled_of: "not divided by √d_k", no_positions_of: "no positional encoding",
  },
  zh: {
    lead: "关掉模型的一个部分再翻译一次，从变化可以看出这个部分起什么作用。论文也逐个去掉部件，但每种变体都重新训练（第 6.2 节，表 3）；这里是训练好的模型失去一个部分。",
    presets: "示例", no_positions: "没有位置编码", no_cross_attention: "没有交叉注意力", uniform_cross_attention: "均匀的交叉注意力",
    one_head: "只留第 1 个头", unscaled: "不除以 √d_k", no_feed_forward: "没有前馈网络", changes: "改动", reset: "全部撤销", remove_change: "撤销这处改动：",
    server: "该模型由服务器用 torch 运行，不支持这些改动，只能指定译文的开头。",
    weight: "手动设置一个注意力权重", weight_hint: "选一个头和一个单元格。同一行的其他权重按比例缩放，使这一行的和仍为 1。",
    original: "原来的权重", set: "新的权重", attends: "关注", query: "查询", reads: "读入", key: "被关注",
    prefix: "指定译文的开头", prefix_set: "确定", prefix_remove: "改由模型选择", unscaled_of: "不除以 √d_k", no_positions_of: "没有位置编码",
  },
});

export function WhatIfView({ session }: { session: Session }) {
  useSession(session);
  const { store, model, base } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  return (
    <div class="what-if-view">
      <p class="lead">{text.lead}</p>
      {model === null || base === null ? <p class="muted computing" role="status">{terms.computing}</p> : <Experiment session={session} model={model} base={base} />}
    </div>
  );
}

function Experiment({ session, model, base }: { session: Session; model: PageModel; base: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const compared = useCompared(session, base);
  const { num_encoder_layers, num_decoder_layers, num_heads } = model.manifest.model;
  const sizes: Sizes = { numHeads: num_heads, numLayers: { encoder: num_encoder_layers, decoder: num_decoder_layers } };
  const canChange = session.siteModel?.kind === "wasm";
  return (
    <>
      {canChange ? <Presets session={session} sizes={sizes} /> : <p class="problem">{text.server}</p>}
      <ComparedTranslations session={session} compared={compared} />
      {canChange && (
        <>
          <Changes session={session} run={base} />
          <Switches store={store} sizes={sizes} />
          <WeightByHand session={session} run={base} />
        </>
      )}
      <Beginning session={session} model={model} />
      <ComparedProbabilities session={session} compared={compared} />
      {canChange && <HeadRanking session={session} run={base} sizes={sizes} />}
    </>
  );
}

function Presets({ session: { store }, sizes }: { session: Session; sizes: Sizes }) {
  const text = useTexts(store, TEXTS);
  const { interventions } = store.state;
  return (
    <div class="controls" role="group" aria-label={text.presets}>
      {PRESETS.filter((name) => name !== "one_head" || sizes.numHeads > 1).map((name) => {
        const wanted = preset(name, sizes);
        const isSet = wanted.every((one) => interventions.some((other) => same(one, other)));
        const others = interventions.filter((other) => !wanted.some((one) => same(one, other)));
        return (
          <button key={name} type="button" aria-pressed={isSet} data-preset={name} onClick={() => store.update({ interventions: isSet ? others : [...others, ...wanted], step: -1 })}>
            {text[name]}
          </button>
        );
      })}
    </div>
  );
}

/** What an intervention does, in words. */
function useDescribe({ store }: Session, run: Run): (one: Intervention) => string {
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const words = useTexts(store, SWITCH_TEXTS);
  const placeName = usePlaceName(store);
  return (one) => {
    if (one.kind === "no_positions") return words.described(terms[one.stack], text.no_positions_of);
    if (one.kind === "unscaled") return words.described(placeName(one), text.unscaled_of);
    if (one.kind !== "set_weight") return words.described(placeName(one), words[one.kind]);
    const { queries, keys } = axesOf(run, one.sublayer === "cross_attention" ? "cross" : one.stack, false);
    const token = (all: typeof queries, index = 0): string => all[groupAt(all, index)]?.text ?? String(index + 1);
    return words.described(placeName(one), `${token(queries, one.query)} ${text.attends} ${token(keys, one.key)}, ${formatPercent(one.value ?? 0)}`);
  };
}

function Changes({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const describe = useDescribe(session, run);
  const { interventions } = store.state;
  if (interventions.length === 0) return null;
  return (
    <section class="changes" aria-label={text.changes}>
      <ul>
        {interventions.map((one, index) => (
          <li key={describe(one)} class="small">
            {describe(one)}
            <button
              type="button" class="remove" aria-label={`${text.remove_change} ${describe(one)}`}
              onClick={() => store.update({ interventions: interventions.filter((_one, other) => other !== index), step: -1 })}
            >×</button>
          </li>
        ))}
      </ul>
      <button type="button" class="reset" onClick={() => store.update({ interventions: [], run: "base", step: -1 })}>{text.reset}</button>
    </section>
  );
}

function Beginning({ session: { store }, model }: { session: Session; model: PageModel }) {
  const text = useTexts(store, TEXTS);
  const [typed, setTyped] = useState("");
  const { prefix } = store.state;
  const set = (event: Event): void => {
    event.preventDefault();
    void model.encodeTarget(typed.trim()).then((ids) => store.update({ prefix: ids, step: -1 }));
  };
  return (
    <form class="controls beginning" onSubmit={set}>
      <label>{text.prefix}<input type="text" class="text-field" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
      <button type="submit" disabled={typed.trim() === ""}>{text.prefix_set}</button>
      {prefix.length > 0 && <button type="button" onClick={() => { setTyped(""); store.update({ prefix: [], step: -1 }); }}>{text.prefix_remove}</button>}
    </form>
  );
}

const HAND = "what_if.weight";

function WeightByHand({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const open = store.state.options[HAND] === "1";
  return (
    <details open={open} onToggle={(event) => { if (event.currentTarget.open !== open) store.setOption(HAND, open ? undefined : "1"); }}>
      <summary>{text.weight}</summary>
      {open && <WeightPanel session={session} run={run} />}
    </details>
  );
}

function WeightPanel({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [dragged, setDragged] = useState<number | null>(null);
  const { place, layer, head } = chosenAttention(run.model, state);
  const name = `${attentionName(place.kind, layer)}.weights`;
  const tensor = usePresentTensors(session, run, [name])?.get(name);
  if (tensor === undefined) return <p class="muted computing" role="status">{terms.computing}</p>;
  const [, numQueries = 0, numKeys = 0] = tensor.shape;
  const weights = tensor.values.subarray(head * numQueries * numKeys, (head + 1) * numQueries * numKeys);
  const { queries, keys, querySide, keySide } = singles(run, place.kind);
  const isMasked = (query: number, key: number): boolean => place.kind === "decoder" && key > query;
  const { query, key } = state;
  const isChosen = query >= 0 && key >= 0 && query < numQueries && key < numKeys && !isMasked(query, key);
  const sublayer = place.kind === "cross" ? "cross_attention" : "self_attention";
  const change: Intervention = { kind: "set_weight", stack: stackOf(place.kind), sublayer, layer, head, query, key };
  const others = state.interventions.filter((one) => !same(one, change));
  const current = state.interventions.find((one) => same(one, change))?.value;
  const original = weights[query * numKeys + key] ?? 0;
  const value = dragged ?? current ?? original;
  return (
    <div class="weight-panel">
      <p class="small muted">{text.weight_hint}</p>
      <HeadChooser session={session} withMean={false} />
      <LinkedMatrix
        store={store} title={text.weight} values={weights} scale={{ kind: "sequential", max: 1 }} queries={queries} keys={keys} querySide={querySide} keySide={keySide}
        rowAxis={place.kind === "encoder" ? text.query : text.reads} columnAxis={text.key} visibleRows={queries.length} isMasked={isMasked}
        selected={isChosen ? { row: query, column: key } : null} onSelect={(row, column) => { if (!isMasked(row, column)) store.update({ query: row, key: column }); }}
      />
      {isChosen && (
        <label class="controls">
          <span><b>{queries[query]?.text}</b> {text.attends} <b>{keys[key]?.text}</b>, {text.original} {formatNumber(original, 3)}.</span>
          {text.set}
          <input
            type="range" min="0" max="1" step="0.01" value={value} data-original={original}
            onInput={(event) => setDragged(Number(event.currentTarget.value))}
            onChange={(event) => {
              setDragged(null);
              store.update({ interventions: [...others, { ...change, value: Number(event.currentTarget.value) }] });
            }}
          />
          <output class="number">{formatNumber(value, 2)}</output>
        </label>
      )}
    </div>
  );
}

/** The rows and columns of an attention, one for each subword. */
function singles(run: Run, kind: Parameters<typeof axesOf>[1]): ReturnType<typeof axesOf> {
  const axes = axesOf(run, kind, false);
  const split = (all: typeof axes.queries): typeof axes.queries =>
    all.flatMap((group) => Array.from({ length: group.end - group.start }, (_, index) => ({ ...group, start: group.start + index, end: group.start + index + 1, text: index === 0 ? group.text : "‥" })));
  return { ...axes, queries: split(axes.queries), keys: split(axes.keys) };
}
