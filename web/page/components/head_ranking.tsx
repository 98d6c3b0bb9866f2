/** Removes one head at a time and lists those whose loss costs the translation most. */

import "./head_ranking.css";

import { useState } from "preact/hooks";

import { allHeads, type Sizes, stateOf, type Switch, withState } from "../interventions.js";
import type { Run, Session } from "../session.js";
import { each, knownResult, useTask } from "../task.js";
import { formatNumber, TERMS, texts, useTexts } from "../text.js";
import { usePlaceName } from "./switches.js";

const TEXTS = texts({
  en: {
    title: "One head removed at a time", start: (count: number) => `Remove each of the ${count} heads once`, cancel: "Cancel",
    intro: "The original translation is kept; a bar is the loss of its log-probability without one head. A click switches the head off.",
    progress: (done: number, total: number) => `${done} of ${total} heads`, rest: (count: number, most: string) => `Each of the other ${count} heads costs less than ${most}.`,
    gains: (count: number) => `Without ${count} of the heads the translation is more probable.`, off: " (off)",
  },
  zh: {
    title: "每次去掉一个头", start: (count: number) => `逐个去掉 ${count} 个头`, cancel: "取消",
    intro: "保持原来的译文；条形表示去掉一个头之后它的对数概率下降多少。点击可关闭该头。",
    progress: (done: number, total: number) => `${done}/${total} 个头`, rest: (count: number, most: string) => `其余 ${count} 个头的下降都小于 ${most}。`,
    gains: (count: number) => `去掉其中 ${count} 个头，译文的概率反而变大。`, off: "（关闭）",
  },
});

const NUM_SHOWN = 16;
const NAME = "each head removed";

interface Loss {
  place: Switch;
  loss: number;
}

function logProb(run: Pick<Run, "chosen">, candidates: Run["candidates"]): number {
  return run.chosen.reduce((sum, _token, step) => sum + (candidates[step]?.next.log_prob ?? 0), 0);
}

async function removeEach(run: Run, places: readonly Switch[], report: (done: number, total: number) => void): Promise<Loss[]> {
  const before = logProb(run, run.candidates);
  const found = await each(
    places,
    async (place) => {
      const { candidates = [] } = await run.model.trace(run.text, {
        source: run.source, target: run.target.slice(1), candidates: 1, wanted: [], interventions: [{ kind: "remove", ...place }],
      });
      return { place, loss: before - logProb(run, candidates) };
    },
    report,
  );
  return found.sort((first, second) => second.loss - first.loss);
}

export function HeadRanking({ session, run, sizes }: { session: Session; run: Run; sizes: Sizes }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [startedRun, setStartedRun] = useState<Run | null>(null);
  const places = allHeads(sizes);
  const isStarted = startedRun === run;
  const { result, done, total } = useTask(session, run, isStarted ? NAME : null, (report) => removeEach(run, places, report));
  const found = result ?? knownResult<Loss[]>(run, NAME);
  return (
    <section class="head-ranking">
      <h3>{text.title}</h3>
      <p class="small muted">{text.intro}</p>
      {found !== undefined ? (
        <Ranking session={session} losses={found} sizes={sizes} />
      ) : isStarted ? (
        <p class="controls" role="status">
          {total > 0 ? text.progress(done, total) : terms.computing}
          {total > 0 && <progress max={total} value={done} aria-label={text.title} />}
          <button type="button" onClick={() => setStartedRun(null)}>{text.cancel}</button>
        </p>
      ) : (
        <p><button type="button" class="start" onClick={() => setStartedRun(run)}>{text.start(places.length)}</button></p>
      )}
    </section>
  );
}

function Ranking({ session: { store }, losses, sizes }: { session: Session; losses: readonly Loss[]; sizes: Sizes }) {
  const text = useTexts(store, TEXTS);
  const placeName = usePlaceName(store);
  const { interventions } = store.state;
  const largest = Math.max(1e-6, ...losses.map(({ loss }) => loss));
  const [shown, rest] = [losses.slice(0, NUM_SHOWN), losses.slice(NUM_SHOWN)];
  const gains = losses.filter(({ loss }) => loss < 0).length;
  return (
    <>
      <ol>
        {shown.map(({ place, loss }) => {
          const { stack, sublayer, layer, head = 0 } = place;
          const isOff = stateOf(interventions, place) === "remove";
          const name = placeName(place);
          return (
            <li key={name}>
              <button
                type="button" aria-pressed={isOff} data-loss={loss} data-stack={stack} data-sublayer={sublayer} data-layer={layer} data-head={head}
                onClick={() => store.update({ interventions: withState(interventions, place, isOff ? "normal" : "remove", sizes), step: -1 })}
              >
                <span class="name">{name}{isOff && text.off}</span>
                <svg width="160" height="12" aria-hidden="true"><rect width={Math.max(0, (160 * loss) / largest)} height="12" /></svg>
                <span class="number">{formatNumber(loss, 3)}</span>
              </button>
            </li>
          );
        })}
      </ol>
      <p class="small muted">
        {rest.length > 0 && text.rest(rest.length, formatNumber(shown[shown.length - 1]?.loss ?? 0, 3))} {gains > 0 && text.gains(gains)}
      </p>
    </>
  );
}
