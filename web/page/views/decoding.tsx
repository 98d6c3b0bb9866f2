/** Live decoding: what the decoder has read at a step, the tokens that it could choose, and what the choice adds up to. */

import "./decoding.css";

import { useState } from "preact/hooks";

import { lengthPenalty } from "../../engine/src/engine.js";
import type { Candidate } from "../../engine/src/index.js";
import { StepControls } from "../components/steps.js";
import { type Label, labels } from "../pieces.js";
import { currentStep, type Run, type Session, useSession } from "../session.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    lead: "At each step the decoder reads the tokens so far and gives every token of the vocabulary a probability. Here the most probable one is chosen, and is read at the next step (section 3.1).",
    read: "The decoder has read", candidates: "The most probable next tokens", choose: "Choose another token, and the translation continues from there.",
    chosen: "chosen", fixed: "fixed", never: "never part of a translation", rank: (rank: number) => `rank ${rank}`,
    continue_with: (token: string) => `Continue with ${token}`, log_prob: "log-probability",
    sum_title: "The sum", sum: "Sum of log-probabilities up to this step", length: "Tokens, with the end token", penalty: "Length penalty", score: "Score",
    limit: "The translation has reached the length limit without an end token.",
    layers: "What each decoder layer alone would choose", layers_note: "The final norm and the output layer are applied to the layer's own output.",
    prefix: "Begin the translation with", apply: "Translate", every: "Probability of each chosen token",
  },
  zh: {
    lead: "每一步，解码器读入已有的词元，为词表中的每个词元给出一个概率；这里选概率最大的一个，下一步再把它读入（第 3.1 节）。",
    read: "解码器已读入", candidates: "概率最大的候选词元", choose: "点选其他词元，译文就从那里继续。",
    chosen: "已选", fixed: "已固定", never: "不会出现在译文中", rank: (rank: number) => `第 ${rank} 名`,
    continue_with: (token: string) => `从 ${token} 继续`, log_prob: "对数概率",
    sum_title: "求和", sum: "到这一步为止的对数概率之和", length: "词元数（含结束标记）", penalty: "长度惩罚", score: "得分",
    limit: "译文达到长度上限，没有输出结束标记。",
    layers: "各解码器层单独会选什么", layers_note: "对该层自己的输出施加最后的归一化和输出层。",
    prefix: "译文以此开头", apply: "翻译", every: "每个所选词元的概率",
  },
});

export function DecodingView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  if (run === null) return <p class="lead">{text.lead}</p>;
  const step = currentStep(session);
  return (
    <>
      <p class="lead">{text.lead}</p>
      <StepControls session={session} />
      <ReadTokens session={session} run={run} step={step} />
      <div class="decoding-columns">
        <Candidates session={session} run={run} step={step} />
        <div class="decoding-side">
          <Sum session={session} run={run} step={step} />
          <Layers session={session} run={run} step={step} />
          {!session.isRecorded && <Prefix session={session} run={run} />}
        </div>
      </div>
      <Chosen session={session} run={run} step={step} />
    </>
  );
}

interface StepProps {
  session: Session;
  run: Run;
  step: number;
}

/** A token as people read it. */
export function tokenLabel(piece: string): Label {
  return labels([piece])[0] ?? { text: piece, kind: "word" };
}

export function TokenText({ piece }: { piece: string }) {
  const { text, kind } = tokenLabel(piece);
  return <span class={`token target ${kind}`}>{text}</span>;
}

const NUM_READ = 24;

function ReadTokens({ session, run, step }: StepProps) {
  const text = useTexts(session.store, TEXTS);
  const read = labels(run.targetPieces.slice(0, step + 1));
  return (
    <p class="read">
      <span class="muted small">{text.read}</span>
      {read.length > NUM_READ && <span class="muted">…</span>}
      {read.slice(-NUM_READ).map(({ text: label, kind }, index) => <span key={index} class={`token target ${kind}`}>{label}</span>)}
    </p>
  );
}

function Candidates({ session, run, step }: StepProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const found = run.candidates[step];
  if (found === undefined) return null;
  const { best, next } = found;
  const isChosen = ({ token }: Candidate): boolean => step < run.chosen.length && token === next.token;
  const listed: (Candidate & { rank?: number })[] = best.some(isChosen) || step >= run.chosen.length ? best : [...best, next];
  const choose = (token: number): void => store.update({ prefix: [...run.chosen.slice(0, step), token], step: -1 });
  return (
    <section class="candidates" aria-labelledby="candidates-title">
      <h3 id="candidates-title">{text.candidates}</h3>
      {!session.isRecorded && <p class="muted small">{text.choose}</p>}
      <ol>
        {listed.map((candidate, index) => {
          const chosen = isChosen(candidate);
          const { text: label, kind } = tokenLabel(candidate.piece);
          const never = run.model.manifest.special.forbidden.includes(candidate.token);
          const mark = chosen ? (step < store.state.prefix.length ? text.fixed : text.chosen) : never ? text.never : "";
          const isFixed = chosen || never || session.isRecorded;
          const rank = candidate.rank === undefined ? "" : ` ${text.rank(candidate.rank)}`;
          return (
            <li key={index} class={chosen ? "chosen" : ""} data-token={candidate.token} data-probability={candidate.probability} data-log-prob={candidate.log_prob}>
              <button
                type="button" class={`token target ${kind}`} aria-current={chosen} disabled={isFixed} title={isFixed ? mark : text.continue_with(label)}
                onClick={() => choose(candidate.token)}
              >
                {label}
              </button>
              <span class="bar-track" aria-hidden="true"><span class="bar-fill" style={{ width: `${100 * candidate.probability}%` }} /></span>
              <span class="number small percent">{formatPercent(candidate.probability)}</span>
              <span class="number small muted log-prob" title={text.log_prob}>{formatNumber(candidate.log_prob)}</span>
              <span class="small mark">{mark}{rank}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function Sum({ session, run, step }: StepProps) {
  const text = useTexts(session.store, TEXTS);
  const { length_penalty, length_penalty_alpha } = run.model.manifest.decoding;
  const last = run.numSteps - 1;
  const count = Math.min(step + 1, run.chosen.length);
  const sum = run.candidates.slice(0, count).reduce((total, { next }) => total + next.log_prob, 0);
  const penalty = lengthPenalty(count, { length_penalty, length_penalty_alpha });
  const ended = run.chosen.length === run.numSteps;
  return (
    <section aria-labelledby="sum-title">
      <h3 id="sum-title">{text.sum_title}</h3>
      <dl class="facts small">
        <dt>{text.sum}</dt><dd class="number" data-log-prob={sum}>{formatNumber(sum, 4)}</dd>
        {step === last && (
          <>
            <dt>{text.length}</dt><dd class="number">{count}</dd>
            <dt>{text.penalty}</dt><dd class="number">{penaltyFormula(count, length_penalty, length_penalty_alpha)} {formatNumber(penalty, 4)}</dd>
            <dt>{text.score}</dt><dd class="number" data-score={sum / penalty}>{formatNumber(sum, 4)} ÷ {formatNumber(penalty, 4)} = <strong>{formatNumber(sum / penalty, 4)}</strong></dd>
          </>
        )}
      </dl>
      {step === last && !ended && <p class="muted small">{text.limit}</p>}
    </section>
  );
}

/** The length penalty written out for n tokens, up to the equals sign. */
export function penaltyFormula(n: number, kind: "none" | "paper" | "average", alpha: number) {
  if (kind === "none") return null;
  const base = kind === "paper" ? `((5 + ${n}) / 6)` : String(n);
  return <>{base}<sup>{formatNumber(alpha)}</sup> =</>;
}

function Layers({ session, run, step }: StepProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  if (run.layerCandidates.length === 0) return null;
  return (
    <section aria-labelledby="layers-title">
      <h3 id="layers-title">{text.layers}</h3>
      <p class="muted small">{text.layers_note}</p>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="layers-title">
        <table class="numbers layer-candidates">
          <thead><tr><th scope="col">{terms.layer}</th><th scope="col">1</th><th scope="col">2</th><th scope="col">3</th></tr></thead>
          <tbody>
            {run.layerCandidates.map((steps, layer) => (
              <tr key={layer}>
                <th scope="row">{layer + 1}</th>
                {(steps[step] ?? []).map((candidate, index) => (
                  <td key={index} data-token={candidate.token} data-probability={candidate.probability}>
                    <TokenText piece={candidate.piece} /> {formatPercent(candidate.probability)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Prefix({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const [typed, setTyped] = useState("");
  const apply = (event: Event): void => {
    event.preventDefault();
    run.model.encodeTarget(typed).then(
      (prefix) => store.update({ prefix, step: -1 }),
      (error: unknown) => session.fail(error),
    );
  };
  return (
    <form class="prefix" onSubmit={apply}>
      <label for="prefix"><h3>{text.prefix}</h3></label>
      <div>
        <input id="prefix" type="text" value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
        <button type="submit" disabled={typed.trim() === ""}>{text.apply}</button>
      </div>
    </form>
  );
}

const COLUMN = 44;
const HEIGHT = 64;

/** A column for each chosen token: its probability; columns after the step are not drawn. */
function Chosen({ session, run, step }: StepProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const tokens = labels(run.chosenPieces);
  return (
    <section aria-labelledby="every-title">
      <h3 id="every-title">{text.every}</h3>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="every-title">
        <svg class="chosen-probabilities" width={COLUMN * tokens.length} height={HEIGHT + 48} role="img" aria-label={text.every}>
          <line x1={0} x2={COLUMN * tokens.length} y1={HEIGHT + 8} y2={HEIGHT + 8} class="axis-line" />
          {tokens.map(({ text: label }, index) => {
            const probability = run.candidates[index]?.next.probability ?? 0;
            if (index > step) return null;
            return (
              <g
                key={index} class={index === step ? "current" : ""} transform={`translate(${COLUMN * index}, 0)`} data-probability={probability}
                onClick={() => store.update({ step: index })}
              >
                <rect class="hit" width={COLUMN} height={HEIGHT + 48} />
                <rect class="bar-fill" x={8} width={COLUMN - 16} y={8 + HEIGHT * (1 - probability)} height={HEIGHT * probability} />
                <text x={COLUMN / 2} y={HEIGHT + 24} text-anchor="middle">{[...label].length > 6 ? `${[...label].slice(0, 5).join("")}…` : label}</text>
                <text class="value" x={COLUMN / 2} y={HEIGHT + 42} text-anchor="middle">{formatPercent(probability)}</text>
              </g>
            );
          })}
        </svg>
      </div>
    </section>
  );
}
