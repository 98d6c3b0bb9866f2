/** The residual stream: how long each token's vector is, what each sublayer adds to it, and what each decoder layer would predict. */

import "./residual.css";

import { useMemo } from "preact/hooks";

import { chosenToken, numLayers, sideOf, sublayersOf, tokensOf, type Stack, type Sublayer } from "../chosen.js";
import { RowNames, StackChoice, TokenChoice } from "../components/choosers.js";
import { largest } from "../components/heatmap.js";
import { LineChart } from "../components/line_chart.js";
import { StageMatrix } from "../components/stage.js";
import { useWidth } from "../components/width.js";
import { asColumns, rowCosines, rowNorms } from "../measures/stream.js";
import { labels } from "../pieces.js";
import { currentStep, type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    pre: "Every sublayer reads each token's vector through a norm and adds its own output to the vector: x + Sublayer(norm(x)) (section 3.1, with the norm before the sublayer). This sum from layer to layer is the residual stream.",
    post: "Every sublayer adds its own output to each token's vector, and a norm follows: norm(x + Sublayer(x)) (section 3.1). This sum from layer to layer is the residual stream.",
    none: "The trace of this model has no residual stream.", norms: "Length ‖x‖ after each sublayer", start: "input", nth: "Layer {layer}", reading: "“{token}”, {place}: ‖x‖ = {value}", self_attention: "self", cross_attention: "cross", feed_forward: "FFN",
    norms_text: "Rows are tokens, columns are the places in the stream. Select a cell to see its token below.",
    chosen: "Token “{token}”: the stream and what each sublayer adds", stream: "‖x‖, the stream", added: "‖Δ‖, what the sublayer adds", length: "length",
    cosine: "cos(Δ, x)", share: "‖Δ‖ ÷ ‖x‖", sublayer: "sublayer", before: "‖x‖ before",
    cosine_text: "A cosine near 0 is a new direction; below 0, the sublayer removes part of what was there.",
    added_map: "Share ‖Δ‖ ÷ ‖x‖ that each sublayer adds", layers: "What each decoder layer would predict",
    layers_text: "The final norm and the output layer applied to each layer's own stream: its most probable next token at every step. Filled cells agree with the translation.",
    choice: "translation", agreement: "{count} of {total} steps",
  },
  zh: {
    pre: "每个子层先对词元的向量做归一化，再把自己的输出加到这个向量上：x + Sublayer(norm(x))（第 3.1 节，归一化在子层之前）。逐层累加的这个和就是残差流。",
    post: "每个子层把自己的输出加到词元的向量上，然后做归一化：norm(x + Sublayer(x))（第 3.1 节）。逐层累加的这个和就是残差流。",
    none: "该模型的追踪结果中没有残差流。", norms: "每个子层之后的长度 ‖x‖", start: "输入", nth: "第 {layer} 层", reading: "“{token}”，{place}：‖x‖ = {value}", self_attention: "自注意力", cross_attention: "交叉", feed_forward: "前馈",
    norms_text: "行是词元，列是残差流中的位置。点选一格，下方显示该词元。",
    chosen: "词元“{token}”：残差流与各子层加上的向量", stream: "残差流 ‖x‖", added: "子层加上的 ‖Δ‖", length: "长度",
    cosine: "cos(Δ, x)", share: "‖Δ‖ ÷ ‖x‖", sublayer: "子层", before: "之前的 ‖x‖",
    cosine_text: "余弦接近 0 表示加上了新的方向；小于 0 表示子层抵消了一部分原有内容。",
    added_map: "各子层加上的比例 ‖Δ‖ ÷ ‖x‖", layers: "每个解码器层会预测什么",
    layers_text: "把最后的归一化和输出层用在每一层自己的残差流上，得到它在每一步最可能的下一个词元。有底色的格与译文相同。",
    choice: "译文", agreement: "{total} 步中的 {count} 步",
  },
});

export function ResidualView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  if (run === null) return null;
  const { architecture, norm_placement } = run.model.manifest.model;
  const isTransformer = architecture === "transformer";
  const stack: Stack = store.state.options["residual.stack"] === "decoder" ? "decoder" : "encoder";
  return (
    <div class="residual-view">
      <p>{isTransformer ? text[norm_placement] : text.none}</p>
      {isTransformer && (
        <div class="controls">
          <StackChoice session={session} stack={stack} onChange={(chosen) => store.setOption("residual.stack", chosen === "decoder" ? chosen : undefined)} />
          <TokenChoice session={session} run={run} stack={stack} />
        </div>
      )}
      {isTransformer && <RowNames session={session} stack={stack} />}
      {isTransformer && <Stream session={session} run={run} stack={stack} />}
      {run.layerCandidates.length > 0 && <LayerTable session={session} run={run} />}
    </div>
  );
}

interface Place {
  layer: number;
  sublayer: Sublayer;
  name: string;
}

function Stream({ session, run, stack }: { session: Session; run: Run; stack: Stack }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const places: Place[] = Array.from({ length: numLayers(run, stack) }).flatMap((_, layer) =>
    sublayersOf(stack).map((sublayer) => ({ layer, sublayer, name: `${stack}.layers.${layer}.${sublayer}` })),
  );
  const tensors = usePresentTensors(session, run, places.flatMap(({ name }) => ["residual_before", "output", "residual_after"].map((part) => `${name}.${part}`)));
  const { d_model } = run.model.manifest.model;
  const found = useMemo(() => {
    if (tensors === undefined) return undefined;
    const get = (place: Place | undefined, part: string): Float32Array => tensors.get(`${place?.name}.${part}`)?.values ?? new Float32Array();
    const before = places.map((place) => rowNorms(get(place, "residual_before"), d_model));
    const added = places.map((place) => rowNorms(get(place, "output"), d_model));
    const after = places.map((place) => rowNorms(get(place, "residual_after"), d_model));
    const cosines = places.map((place) => rowCosines(get(place, "output"), get(place, "residual_before"), d_model));
    const shares = added.map((one, index) => one.map((norm, row) => norm / (before[index]?.[row] || 1)));
    return { before, added, after, cosines, shares, norms: asColumns([before[0] ?? new Float32Array(), ...after]), sharesByToken: asColumns(shares) };
  }, [run, stack, tensors !== undefined]);
  if (found === undefined) return <p class="computing muted" role="status" ref={box}>{terms.computing}</p>;
  const side = sideOf(stack);
  const tokens = tokensOf(run, side);
  const token = chosenToken(run, store.state, stack);
  const short: Record<Sublayer, string> = { self_attention: terms.self_attention, cross_attention: terms.cross_attention, feed_forward: terms.feed_forward };
  const title = ({ layer, sublayer }: Place): string => `${layer + 1} ${short[sublayer]}`;
  const place = Math.max(0, Math.min(places.length, Number(store.state.options["residual.place"] ?? places.length) || 0));
  const choose = (row: number, chosen: number): void =>
    store.update({ options: { ...store.state.options, "residual.place": String(chosen) }, ...(stack === "encoder" ? { key: row } : { step: row }) });
  const column = (index: number): number[] => found.norms.length > 0 ? [found.norms[token * (places.length + 1) + index] ?? 0] : [];
  const room = Math.max(160, Math.min(width, 900) - 88);
  const names = [text.start, ...places.map(title)];
  const columns = [text.start, ...places.map(({ layer, sublayer }) => `${layer + 1} ${text[sublayer]}`)];
  return (
    <>
      <section class="part" ref={box}>
        <h3>{text.norms}</h3>
        <p class="small">{text.norms_text}</p>
        <div class="scroll">
          <StageMatrix
            store={store} name="norms" symbol="‖x‖" title={text.norms} matrix={{ values: found.norms, numRows: tokens.length, numColumns: places.length + 1 }} scale="sequential" maximum={largest(found.norms)}
            width={room} height={Math.min(16 * tokens.length, Math.max(384, Math.min(512, tokens.length)))} rowSide={side} rowLabels={tokens} columnLabels={columns} maxCell={28} selected={{ row: token, column: place }} onSelect={choose}
            note={text.reading.replace("{token}", tokens[token] ?? "").replace("{place}", names[place] ?? "").replace("{value}", formatNumber(column(place)[0] ?? NaN, 4))}
          />
        </div>
      </section>
      <section class="part">
        <h3>{text.added_map}</h3>
        <div class="scroll">
          <StageMatrix
            store={store} name="shares" symbol="‖Δ‖ ÷ ‖x‖" title={text.added_map} matrix={{ values: found.sharesByToken, numRows: tokens.length, numColumns: places.length }} scale="sequential" maximum={largest(found.sharesByToken)}
            width={room} height={Math.min(16 * tokens.length, Math.max(384, Math.min(512, tokens.length)))} rowSide={side} rowLabels={tokens} columnLabels={columns.slice(1)} maxCell={28} selected={place > 0 ? { row: token, column: place - 1 } : null} onSelect={(row, chosen) => choose(row, chosen + 1)}
          />
        </div>
      </section>
      <section class="part" data-token={token}>
        <h3>{text.chosen.replace("{token}", tokens[token] ?? "")}</h3>
        <LineChart
          title={text.norms} width={Math.min(width, 720)} xLabel={text.sublayer} yLabel={text.length} fromZero xNames={[text.start, ...places.map(({ layer, sublayer }) => (sublayer === "self_attention" ? text.nth.replace("{layer}", String(layer + 1)) : ""))]}
          lines={[
            { name: text.stream, hue: "source", points: Array.from({ length: places.length + 1 }, (_, index) => [index, column(index)[0] ?? 0] as const) },
            { name: text.added, hue: "target", points: found.added.map((one, index) => [index + 1, one[token] ?? 0] as const) },
          ]}
        />
        <div class="scroll" tabIndex={0} role="region" aria-label={text.chosen.replace("{token}", tokens[token] ?? "")}>
          <table class="numbers">
            <thead><tr><th>{text.sublayer}</th><th>{text.before}</th><th>{text.added}</th><th>{text.share}</th><th>{text.cosine}</th></tr></thead>
            <tbody>
              {places.map((one, index) => {
                const [before, added, share, cosine] = [found.before, found.added, found.shares, found.cosines].map((columns) => columns[index]?.[token] ?? NaN);
                return (
                  <tr key={one.name} class={index + 1 === place ? "chosen" : ""} data-sublayer={one.name} data-before={before} data-added={added} data-cosine={cosine}>
                    <th>{title(one)}</th><td>{formatNumber(before ?? NaN, 4)}</td><td>{formatNumber(added ?? NaN, 4)}</td><td>{formatPercent(share ?? NaN)}</td><td>{formatNumber(cosine ?? NaN, 3)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
        <p class="muted small">{text.cosine_text}</p>
      </section>
    </>
  );
}

/** The most probable token of each decoder layer at each step, beside the translation. */
function LayerTable({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const step = currentStep(session);
  const show = (piece: string): string => labels([piece])[0]?.text ?? piece;
  const chosen = labels(run.chosenPieces).map(({ text }) => text);
  return (
    <section class="part">
      <h3>{text.layers}</h3>
      <p class="small key">{text.layers_text}</p>
      <div class="scroll" tabIndex={0} role="region" aria-label={text.layers}>
        <table class="numbers layers">
          <thead><tr><th>{terms.step}</th>{run.target.map((_, index) => <th key={index} aria-current={index === step ? "step" : undefined}>{index + 1}</th>)}<td /></tr></thead>
          <tbody>
            {run.layerCandidates.map((steps, layer) => {
              const agreeing = steps.filter(([best], index) => best !== undefined && best.token === run.chosen[index]).length;
              return (
                <tr key={layer} data-layer={layer}>
                  <th>{text.nth.replace("{layer}", String(layer + 1))}</th>
                  {steps.map(([best], index) => best && (
                    <td
                      key={index} class={best.token === run.chosen[index] ? "agrees" : ""} data-step={index} data-token={best.token} data-probability={best.probability}
                      onMouseEnter={() => store.setHover({ side: "target", index: index + 1 })} onMouseLeave={() => store.setHover(null)}
                    >
                      {show(best.piece)}<span class="probability">{formatPercent(best.probability)}</span>
                    </td>
                  ))}
                  <td>{text.agreement.replace("{count}", String(agreeing)).replace("{total}", String(steps.length))}</td>
                </tr>
              );
            })}
          </tbody>
          <tfoot>
            <tr>
              <th>{text.choice}</th>
              {run.chosen.map((token, index) => <td key={index} data-step={index} data-token={token}>{chosen[index]}<span class="probability">{formatPercent(run.candidates[index]?.next.probability ?? NaN)}</span></td>)}
              <td />
            </tr>
          </tfoot>
        </table>
      </div>
    </section>
  );
}
