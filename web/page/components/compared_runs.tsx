/** The translations of the original and of the changed model side by side, with the probability of each token in both. */

import "./compared_runs.css";

import { divergence } from "../measures/distributions.js";
import { differences, firstDifference } from "../measures/sequences.js";
import { type Group, groups } from "../pieces.js";
import { type Run, type Session, useTensors } from "../session.js";
import { useTask } from "../task.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    title: "Both translations", base: "Original", changed: "Changed", same: "The translations are the same.", empty: "empty", hint: "Nothing is changed: choose an example, or switch something off.",
    differ: (step: number, before: string, after: string) => `They first differ at step ${step}: “${before}” became “${after}”.`,
    ended: (step: number) => `They first differ at step ${step}: one of them ends.`,
    original_tokens: "The original's tokens, in both models", changed_tokens: "The changed translation's tokens, in both models",
    token: "Token", before: "Original", after: "Changed", log: "Change of log-probability", kl: "KL divergence", prefers: "Changed model prefers",
    kl_note: "KL(original ‖ changed) of the two distributions over the vocabulary, in nats, after the same beginning. 0: the change makes no difference at this step.",
    total: "Sum",
  },
  zh: {
    title: "两个译文", base: "原模型", changed: "改动后", same: "译文相同。", empty: "空", hint: "还没有改动：选一个示例，或关闭某个部分。",
    differ: (step: number, before: string, after: string) => `从第 ${step} 步开始不同：“${before}”变成“${after}”。`,
    ended: (step: number) => `从第 ${step} 步开始不同：其中一个已经结束。`,
    original_tokens: "原译文的词元在两个模型中的概率", changed_tokens: "新译文的词元在两个模型中的概率",
    token: "词元", before: "原模型", after: "改动后", log: "对数概率的变化", kl: "KL 散度", prefers: "改动后的首选",
    kl_note: "KL（原模型 ‖ 改动后）：在相同的开头之后，两个模型在词表上的分布之间的散度，单位为奈特。0 表示这处改动在该步没有影响。",
    total: "合计",
  },
});

/** Log-probabilities of the tokens of a translation, and the most probable tokens, in a model with other interventions. */
interface Forced {
  logProbs: number[];
  best: string[];
  divergences: number[] | null;
}

/** The runs that are compared. A chosen beginning is a change as well. `before` is undefined while it is computed. */
export interface Compared {
  before: Run | undefined;
  after: Run;
}

export function useCompared(session: Session, base: Run): Compared {
  const { store, changed } = session;
  const { prefix } = store.state;
  const free = useTask(session, prefix.length > 0 ? base : null, "without a chosen beginning", () =>
    session.trace(base.model, { ...store.state, text: base.text, prefix: [] }, []),
  );
  return { before: prefix.length > 0 ? free.result : base, after: changed ?? base };
}

/** Both translations, with the tokens that only one of them has. */
export function ComparedTranslations({ session, compared: { before, after } }: { session: Session; compared: Compared }) {
  const { store, status } = session;
  const { words } = store.state;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  if (before === undefined) return <p class="muted computing" role="status">{terms.computing}</p>;
  const isSame = before === after;
  const first = firstDifference(before.chosen, after.chosen);
  const { first: onlyBefore, second: onlyAfter } = differences(before.chosen, after.chosen);
  const [old, now] = [before.chosenPieces[first], after.chosenPieces[first]];
  const show = (pieces: readonly string[]): string => groups(pieces, { words: false })[0]?.text ?? "";
  const finding = isSame ? text.hint : first < 0 ? text.same : old === undefined || now === undefined ? text.ended(first + 1) : text.differ(first + 1, show([old]), show([now]));
  return (
    <section class="compared" data-first-difference={first} aria-label={text.title}>
      <Translation run={before} name={text.base} differs={onlyBefore} words={words} empty={text.empty} />
      {!isSame && <Translation run={after} name={text.changed} differs={onlyAfter} words={words} empty={text.empty} />}
      <p class="finding" role="status">{status.kind === "translating" ? terms.computing : finding}</p>
    </section>
  );
}

/** The probabilities of the tokens of both translations in both models. */
export function ComparedProbabilities({ session, compared: { before, after } }: { session: Session; compared: Compared }) {
  if (before === undefined || before === after) return null;
  return (
    <div class="compared compared-tables">
      <Probabilities session={session} run={before} other={after} isOriginal />
      {firstDifference(before.chosen, after.chosen) >= 0 && <Probabilities session={session} run={after} other={before} isOriginal={false} />}
    </div>
  );
}

interface TranslationProps {
  run: Run;
  name: string;
  differs: readonly boolean[];
  words: boolean;
  empty: string;
}

function Translation({ run, name, differs, words, empty }: TranslationProps) {
  return (
    <ul class="tokens compared-tokens" aria-label={name} data-output={run.output}>
      <li class="side small" aria-hidden="true">{name}</li>
      {run.chosen.length === 0 && <li class="muted">{empty}</li>}
      {groups(run.chosenPieces, { words }).map(({ start, end, text, kind }) => {
        const isOther = differs.slice(start, end).includes(true);
        return <li key={start} class={`token ${kind} ${isOther ? "differs" : ""}`} data-differs={isOther}>{text}</li>;
      })}
    </ul>
  );
}

interface ProbabilitiesProps {
  session: Session;
  /** The run whose tokens are listed. */
  run: Run;
  /** The model that they are given to as well. */
  other: Run;
  isOriginal: boolean;
}

function Probabilities({ session, run, other, isOriginal }: ProbabilitiesProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const own = useTensors(session, run, isOriginal ? ["logits"] : [])?.get("logits");
  const isReady = !isOriginal || own !== undefined;
  const task = useTask(session, run, isReady ? `forced ${JSON.stringify(other.interventions)}` : null, async (): Promise<Forced> => {
    const { source, target, text: sentence, chosen } = run;
    const found = await run.model.trace(sentence, {
      source, target: target.slice(1), candidates: 1, wanted: isOriginal ? ["logits"] : [], interventions: other.interventions,
    });
    const { candidates = [], tensors } = found;
    const theirs = tensors.get("logits");
    const width = own?.shape[1] ?? 0;
    const row = (values: Float32Array, step: number): Float32Array => values.subarray(step * width, (step + 1) * width);
    return {
      logProbs: chosen.map((_token, step) => candidates[step]?.next.log_prob ?? NaN),
      best: chosen.map((_token, step) => candidates[step]?.best[0]?.piece ?? ""),
      divergences: own && theirs ? chosen.map((_token, step) => divergence(row(own.values, step), row(theirs.values, step))) : null,
    };
  });
  const forced = task.result;
  if (forced === undefined) return <p class="muted computing" role="status">{terms.computing}</p>;
  const ownLogs = run.chosen.map((_token, step) => run.candidates[step]?.next.log_prob ?? NaN);
  const [before, after] = isOriginal ? [ownLogs, forced.logProbs] : [forced.logProbs, ownLogs];
  const rows = groups(run.chosenPieces, { words: store.state.words });
  const sum = (values: readonly number[], { start, end }: Pick<Group, "start" | "end">): number => values.slice(start, end).reduce((total, one) => total + one, 0);
  const whole = { start: 0, end: run.chosen.length };
  return (
    <section class="probabilities">
      <h3>{isOriginal ? text.original_tokens : text.changed_tokens}</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={isOriginal ? text.original_tokens : text.changed_tokens}>
        <table class="numbers">
          <thead>
            <tr>
              <th scope="col">{text.token}</th><th scope="col">{text.before}</th><th scope="col">{text.after}</th><th scope="col">{text.log}</th>
              {forced.divergences && <th scope="col">{text.kl}</th>}
              {isOriginal && <th scope="col">{text.prefers}</th>}
            </tr>
          </thead>
          <tbody>
            {rows.map((group) => {
              const [one, two] = [sum(before, group), sum(after, group)];
              const divergenceHere = forced.divergences && sum(forced.divergences, group);
              const best = forced.best.slice(group.start, group.end);
              const changes = isOriginal && best.some((piece, index) => piece !== run.candidates[group.start + index]?.best[0]?.piece);
              return (
                <tr key={group.start} data-step={group.start} data-before={Math.exp(one)} data-after={Math.exp(two)} data-divergence={divergenceHere ?? undefined} class={changes ? "differs" : ""}>
                  <th scope="row">{group.text}</th>
                  <td><Bar share={Math.exp(one)} /></td>
                  <td><Bar share={Math.exp(two)} isChanged /></td>
                  <td>{formatNumber(two - one, 3)}</td>
                  {divergenceHere !== null && <td>{formatNumber(divergenceHere, 3)}</td>}
                  {isOriginal && <td>{changes && groups(best, { words: true }).map((found) => found.text).join(" ")}</td>}
                </tr>
              );
            })}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{text.total}</th><td /><td /><td>{formatNumber(sum(after, whole) - sum(before, whole), 3)}</td>
              {forced.divergences && <td>{formatNumber(sum(forced.divergences, whole), 3)}</td>}
              {isOriginal && <td />}
            </tr>
          </tfoot>
        </table>
      </div>
      {forced.divergences && <p class="small muted">{text.kl_note}</p>}
    </section>
  );
}

/** A probability as a number and as a bar. */
function Bar({ share, isChanged = false }: { share: number; isChanged?: boolean }) {
  return (
    <span class="share">
      <svg width="48" height="8" aria-hidden="true"><rect class="rail" width="48" height="8" /><rect class={isChanged ? "changed" : "base"} width={48 * share} height="8" /></svg>
      <span>{formatPercent(share)}</span>
    </span>
  );
}
