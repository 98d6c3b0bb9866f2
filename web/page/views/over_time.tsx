/** Over training: one sentence through each checkpoint that the run has kept, beside the losses. */

import "./over_time.css";

import { useEffect, useState } from "preact/hooks";

import { attentionName, chosenHead, chosenLayer, stackOf } from "../chosen.js";
import { HeadChooser } from "../components/head_chooser.js";
import { Heatmap } from "../components/heatmap.js";
import { LossCurve } from "../components/loss_curve.js";
import { Icon } from "../components/steps.js";
import { type Checkpoint, CheckpointModels, type CheckpointRun, type Checkpoints, loadCheckpoints } from "../model/checkpoints.js";
import { EXAMPLE_MODEL } from "../model/site.js";
import { labels } from "../pieces.js";
import { currentStep, type Run, type Session, useSession } from "../session.js";
import { ATTENTION_TITLES, formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";
import { TokenText } from "./decoding.js";

const TEXTS = texts({
  en: {
    lead: "The model as it was at several moments of its training, on the same sentence: what it translates, and where it attends (section 5).",
    none: "This model's run has kept no checkpoints; heedful train --keep-checkpoints keeps them.", example: "Show the example run: digit reversal",
    curve: "Loss by training step", train_loss: "training loss", valid_loss: "validation loss", step: "training step, logarithmic",
    slider: "Checkpoint", play: "Play", pause: "Pause", at: (step: string) => `Training step ${step}`,
    loss: (train: string, valid: string) => `training loss ${train}, validation loss ${valid}`,
    table: "The sentence through training", translation: "Translation", log_prob: "log-probability of the final translation",
    candidates: (read: string) => `After ${read}, the most probable next tokens`, note: "Every checkpoint is given the final translation up to the chosen step.",
    attention: "One attention head through training", forced: "Rows: the decoder's input, which is the final translation. Click a map to choose its checkpoint.", empty: "(empty)",
    source_rows: "Rows and columns: the source. Click a map to choose its checkpoint.",
  },
  zh: {
    lead: "同一个句子交给训练过程中不同时刻的模型：译文是什么，注意力落在哪里（第 5 节）。",
    none: "此模型训练时没有保留检查点；用 heedful train --keep-checkpoints 可以保留。", example: "查看示例：数字倒序",
    curve: "各训练步的损失", train_loss: "训练损失", valid_loss: "验证损失", step: "训练步（对数坐标）",
    slider: "检查点", play: "播放", pause: "暂停", at: (step: string) => `第 ${step} 训练步`,
    loss: (train: string, valid: string) => `训练损失 ${train}，验证损失 ${valid}`,
    table: "训练过程中的同一句话", translation: "译文", log_prob: "最终译文的对数概率",
    candidates: (read: string) => `读入 ${read} 之后概率最大的词元`, note: "每个检查点都读入最终译文在所选步之前的部分。",
    attention: "训练过程中的一个注意力头", forced: "行是解码器的输入，即最终译文。点击某张图可选中该检查点。", empty: "（空）",
    source_rows: "行与列都是源句。点击某张图可选中该检查点。",
  },
});

const CHECKPOINT = "over_time.checkpoint";
const PLAY_MILLISECONDS = 900;

export function OverTimeView({ session }: { session: Session }) {
  useSession(session);
  const { base: run, siteModel, site } = session;
  const text = useTexts(session.store, TEXTS);
  const found = useCheckpoints(session);
  const hasExample = siteModel?.name !== EXAMPLE_MODEL && site?.models.some(({ name }) => name === EXAMPLE_MODEL);
  return (
    <>
      <p class="lead">{text.lead}</p>
      {run !== null && siteModel?.has_checkpoints !== true && (
        <>
          <p>{text.none}</p>
          {hasExample && <p><button type="button" onClick={() => session.choose(EXAMPLE_MODEL)}>{text.example}</button></p>}
        </>
      )}
      {run !== null && found !== null && <Training session={session} run={run} found={found} />}
    </>
  );
}

/** The checkpoints of the open model; null if it has none or they are not loaded. */
function useCheckpoints(session: Session): Checkpoints | null {
  const { siteModel } = session;
  const [found, setFound] = useState<{ of: unknown; value: Checkpoints } | null>(null);
  useEffect(() => {
    if (siteModel?.has_checkpoints !== true) return;
    loadCheckpoints(siteModel).then((value) => setFound({ of: siteModel, value }), (error: unknown) => session.fail(error));
  }, [siteModel]);
  return found !== null && found.of === siteModel ? found.value : null;
}

/** What each checkpoint computes, as far as it is known. */
function useRuns(session: Session, run: Run, found: Checkpoints, tensor: string): (CheckpointRun | undefined)[] {
  const { siteModel } = session;
  const [models, setModels] = useState<CheckpointModels | null>(null);
  const [runs, setRuns] = useState<{ key: string; list: (CheckpointRun | undefined)[] }>({ key: "", list: [] });
  const key = `${run.key} ${tensor}`;
  useEffect(() => {
    if (siteModel === null) return;
    const opened = new CheckpointModels(siteModel, found.checkpoints);
    setModels(opened);
    return () => opened.close();
  }, [found]);
  useEffect(() => {
    if (models === null) return;
    let stopped = false;
    const work = async (): Promise<void> => {
      const list: (CheckpointRun | undefined)[] = [];
      for (const checkpoint of found.checkpoints) {
        list.push(await models.run(checkpoint, run, tensor));
        if (stopped) return;
        setRuns({ key, list: [...list] });
      }
    };
    work().catch((error: unknown) => {
      if (!stopped) session.fail(error);
    });
    return () => {
      stopped = true;
    };
  }, [models, key]);
  return runs.key === key ? runs.list : [];
}

function Training({ session, run, found }: { session: Session; run: Run; found: Checkpoints }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const { state } = store;
  const kind = state.attention;
  const tensor = `${attentionName(kind, chosenLayer(run, state, stackOf(kind)))}.weights`;
  const runs = useRuns(session, run, found, tensor);
  const last = found.checkpoints.length - 1;
  const asked = state.options[CHECKPOINT];
  const selected = asked !== undefined && /^\d+$/.test(asked) ? Math.min(Number(asked), last) : last;
  const select = (index: number): void => store.setOption(CHECKPOINT, index === last ? undefined : String(index));
  const nameOf = ({ step }: Checkpoint): string => text.at(step.toLocaleString("en"));
  const checkpoint = found.checkpoints[selected];
  const current = runs[selected];
  if (checkpoint === undefined) return null;
  const loss = (value: number | null): string => (value === null ? "–" : formatNumber(value));
  return (
    <>
      <section aria-labelledby="curve-title">
        <h3 id="curve-title">{text.curve}</h3>
        <LossCurve found={found} selected={selected} onSelect={select} title={text.curve} names={text} nameOf={nameOf} />
        <CheckpointSlider session={session} selected={selected} last={last} select={select} label={nameOf(checkpoint)} />
      </section>
      <section class="now" aria-labelledby="now-title" data-step={checkpoint.step}>
        <h3 id="now-title">{nameOf(checkpoint)}</h3>
        <p class="muted small number">{text.loss(loss(checkpoint.train_loss), loss(checkpoint.valid_loss))}</p>
        {current === undefined ? <p class="muted small" role="status">{terms.computing}</p> : <Own run={run} current={current} title={text.translation} empty={text.empty} />}
        {current !== undefined && <Next session={session} run={run} current={current} />}
      </section>
      <AttentionThroughTraining session={session} run={run} found={found} runs={runs} selected={selected} select={select} nameOf={nameOf} />
      <section aria-labelledby="table-title">
        <h3 id="table-title">{text.table}</h3>
        <div class="scroll">
          <table class="numbers through">
            <thead><tr><th scope="col">{terms.step}</th><th scope="col">{text.valid_loss}</th><th scope="col">{text.log_prob}</th><th scope="col">{text.translation}</th></tr></thead>
            <tbody>
              {found.checkpoints.map((one, index) => (
                <tr key={one.step} class={index === selected ? "selected" : ""} data-step={one.step}>
                  <th scope="row"><button type="button" aria-pressed={index === selected} onClick={() => select(index)}>{one.step.toLocaleString("en")}</button></th>
                  <td>{loss(one.valid_loss)}</td>
                  <td data-log-prob={runs[index]?.log_prob}>{runs[index] === undefined ? "…" : formatNumber(runs[index].log_prob)}</td>
                  <td class="own">{runs[index] === undefined ? "…" : runs[index].text || text.empty}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
    </>
  );
}

function CheckpointSlider({ session, selected, last, select, label }: { session: Session; selected: number; last: number; select: (index: number) => void; label: string }) {
  const text = useTexts(session.store, TEXTS);
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return;
    if (selected === last) {
      setPlaying(false);
      return;
    }
    const timer = setTimeout(() => select(selected + 1), PLAY_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [playing, selected]);
  const toggle = (): void => {
    if (!playing && selected === last) select(0);
    setPlaying(!playing);
  };
  return (
    <div class="steps">
      <button type="button" class="icon-button" aria-label={playing ? text.pause : text.play} title={playing ? text.pause : text.play} onClick={toggle}>
        <Icon name={playing ? "pause" : "play"} />
      </button>
      <input type="range" min={0} max={last} value={selected} aria-label={text.slider} aria-valuetext={label} onInput={(event) => select(Number(event.currentTarget.value))} />
      <span class="small number">{label}</span>
    </div>
  );
}

/** The checkpoint's own translation; tokens that the final translation has at the same place are marked. */
function Own({ run, current, title, empty }: { run: Run; current: CheckpointRun; title: string; empty: string }) {
  const tokens = labels(current.pieces);
  return (
    <ul class="tokens own-tokens" aria-label={title} data-output={current.text}>
      <li class="side small" aria-hidden="true">{title}</li>
      {tokens.length === 0 && <li class="muted small">{empty}</li>}
      {tokens.map(({ text, kind }, index) => (
        <li key={index} class={`token target ${kind} ${current.pieces[index] === run.chosenPieces[index] ? "same" : "different"}`}>{text}</li>
      ))}
    </ul>
  );
}

/** The candidates at the chosen step. */
function Next({ session, run, current }: { session: Session; run: Run; current: CheckpointRun }) {
  const text = useTexts(session.store, TEXTS);
  const step = Math.min(currentStep(session), current.candidates.length - 1);
  const read = labels(run.targetPieces.slice(0, step + 1)).slice(-3).map((label) => label.text).join(" ");
  const found = current.candidates[step];
  if (found === undefined) return null;
  return (
    <div class="next">
      <h4>{text.candidates(step > 2 ? `… ${read}` : read)}</h4>
      <p class="muted small">{text.note}</p>
      <ol>
        {found.best.map((candidate, index) => (
          <li key={index} class={candidate.token === found.next.token ? "chosen" : ""} data-token={candidate.token} data-probability={candidate.probability}>
            <TokenText piece={candidate.piece} />
            <span class="bar-track" aria-hidden="true"><span class="bar-fill" style={{ width: `${100 * candidate.probability}%` }} /></span>
            <span class="number small">{formatPercent(candidate.probability)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

interface AttentionProps {
  session: Session;
  run: Run;
  found: Checkpoints;
  runs: readonly (CheckpointRun | undefined)[];
  selected: number;
  select: (index: number) => void;
  nameOf: (checkpoint: Checkpoint) => string;
}

const SMALL = 84;

function AttentionThroughTraining({ session, run, found, runs, selected, select, nameOf }: AttentionProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const titles = useTexts(store, ATTENTION_TITLES);
  const { attention } = store.state;
  const head = chosenHead(run, store.state);
  const rows = labels(attention === "encoder" ? run.sourcePieces : run.targetPieces).map((label) => label.text);
  const columns = labels(attention === "decoder" ? run.targetPieces : run.sourcePieces).map((label) => label.text);
  const size = rows.length * columns.length;
  const matrix = (index: number): Float32Array | undefined => runs[index]?.weights?.values.subarray(head * size, (head + 1) * size);
  const visible = attention === "encoder" ? {} : { visibleRows: currentStep(session) + 1 };
  const masked = attention === "decoder" ? { isMasked: (row: number, column: number) => column > row } : {};
  const shared = { store, numRows: rows.length, numColumns: columns.length, scale: { kind: "sequential" as const, max: 1 }, ...visible, ...masked };
  const large = matrix(selected);
  return (
    <section aria-labelledby="attention-title">
      <h3 id="attention-title">{text.attention}</h3>
      <HeadChooser session={session} withMean={false} />
      <p class="muted small">{attention === "encoder" ? text.source_rows : text.forced}</p>
      <div class="small-multiples">
        {found.checkpoints.map((checkpoint, index) => {
          const values = matrix(index);
          return (
            <button key={checkpoint.step} type="button" aria-pressed={index === selected} onClick={() => select(index)} data-step={checkpoint.step}>
              {values && <Heatmap {...shared} title={`${titles[attention]}, ${nameOf(checkpoint)}`} values={values} width={SMALL} />}
              <span class="small number">{checkpoint.step.toLocaleString("en")}</span>
            </button>
          );
        })}
      </div>
      {large && (
        <div class="scroll">
          <Heatmap {...shared} title={`${titles[attention]}, ${nameOf(found.checkpoints[selected] as Checkpoint)}`} values={large} width={360} rowLabels={rows} columnLabels={columns} />
        </div>
      )}
    </section>
  );
}
