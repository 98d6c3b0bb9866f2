/** The wall of switches: every head, every sublayer, and what concerns a whole stack. A click goes from on over off to uniform. */

import "./switches.css";

import type { Intervention } from "../../engine/src/index.js";
import { type Stack, type Sublayer, sublayersOf } from "../chosen.js";
import { type Sizes, stateOf, type Switch, type SwitchState, withState } from "../interventions.js";
import { TERMS, type Texts, texts, useTexts } from "../text.js";
import type { Store } from "../state.js";

export const SWITCH_TEXTS = texts({
  en: {
    normal: "on", remove: "off", uniform: "uniform", all: "all", positions: "Without positional encoding", unscaled: "Without ÷ √d_k",
    legend: "Each square is a head, or a whole sublayer. A click switches it off (×), then makes its attention uniform (=), then on again.",
    place: (stack: string, layer: number | undefined, sublayer: string | undefined, head: number | undefined) =>
      [stack, layer === undefined ? "every layer" : `layer ${layer + 1}`, sublayer?.toLowerCase() ?? "every sublayer", ...(head === undefined ? [] : [`head ${head + 1}`])].join(", "),
    described: (place: string, what: string) => `${place}: ${what}`,
  },
  zh: {
    normal: "正常", remove: "关闭", uniform: "均匀", all: "全部", positions: "去掉位置编码", unscaled: "不除以 √d_k",
    legend: "每个方格是一个头，或整个子层。点击依次为：关闭（×）、注意力改为均匀（=）、恢复正常。",
    place: (stack: string, layer: number | undefined, sublayer: string | undefined, head: number | undefined) =>
      `${stack}${layer === undefined ? "所有层" : `第 ${layer + 1} 层`}的${sublayer ?? "所有子层"}${head === undefined ? "" : `，第 ${head + 1} 个头`}`,
    described: (place: string, what: string) => `${place}：${what}`,
  },
});

export const SUBLAYER_NAMES: Texts<Record<Sublayer, string>> = texts({
  en: { self_attention: "Self-attention", cross_attention: "Cross-attention", feed_forward: "Feed-forward" },
  zh: { self_attention: "自注意力", cross_attention: "交叉注意力", feed_forward: "前馈网络" },
});

/** The name of a part of the model; what an intervention does not name stands for all. */
export function usePlaceName(store: Store): (one: Pick<Intervention, "stack" | "sublayer" | "layer" | "head">) => string {
  const text = useTexts(store, SWITCH_TEXTS);
  const terms = useTexts(store, TERMS);
  const names = useTexts(store, SUBLAYER_NAMES);
  return ({ stack, sublayer, layer, head }) => text.place(terms[stack], layer, sublayer && names[sublayer], head);
}

const MARKS: Record<SwitchState, string> = { normal: "", remove: "×", uniform: "=" };

interface SwitchesProps {
  store: Store;
  sizes: Sizes;
}

export function Switches({ store, sizes }: SwitchesProps) {
  const text = useTexts(store, SWITCH_TEXTS);
  return (
    <div class="switches">
      <div class="switches-stacks">
        <StackSwitches store={store} sizes={sizes} stack="encoder" />
        <StackSwitches store={store} sizes={sizes} stack="decoder" />
      </div>
      <p class="small muted">{text.legend}</p>
    </div>
  );
}

function StackSwitches({ store, sizes, stack }: SwitchesProps & { stack: Stack }) {
  const text = useTexts(store, SWITCH_TEXTS);
  const terms = useTexts(store, TERMS);
  const names = useTexts(store, SUBLAYER_NAMES);
  const { interventions } = store.state;
  const columns = sublayersOf(stack).flatMap((sublayer) => [
    { sublayer, head: undefined },
    ...(sublayer === "feed_forward" ? [] : Array.from({ length: sizes.numHeads }, (_, head) => ({ sublayer, head }))),
  ]);
  const whole = (kind: "no_positions" | "unscaled") => {
    const checked = interventions.some((one) => one.kind === kind && one.stack === stack);
    const change = (): Intervention[] => (checked ? interventions.filter((one) => one.kind !== kind || one.stack !== stack) : [...interventions, { kind, stack }]);
    return (
      <label>
        <input type="checkbox" checked={checked} data-kind={kind} data-stack={stack} onChange={() => store.update({ interventions: change() })} />
        {kind === "unscaled" ? text.unscaled : text.positions}
      </label>
    );
  };
  return (
    <section class="stack-switches">
      <h3>{terms[stack]}</h3>
      <div class="controls small">{whole("no_positions")}{whole("unscaled")}</div>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <td />
              {sublayersOf(stack).map((sublayer) => (
                <th key={sublayer} scope="colgroup" colSpan={sublayer === "feed_forward" ? 1 : sizes.numHeads + 1}>{names[sublayer]}</th>
              ))}
            </tr>
            <tr>
              <td />
              {columns.map(({ sublayer, head }) => <th key={`${sublayer} ${head}`} scope="col" class={head === undefined ? "first" : ""}>{head === undefined ? text.all : head + 1}</th>)}
            </tr>
          </thead>
          <tbody>
            {Array.from({ length: sizes.numLayers[stack] }, (_, layer) => (
              <tr key={layer}>
                <th scope="row">{terms.layer} {layer + 1}</th>
                {columns.map(({ sublayer, head }) => (
                  <td key={`${sublayer} ${head}`} class={head === undefined ? "first" : ""}>
                    <OneSwitch store={store} sizes={sizes} place={{ stack, sublayer, layer, ...(head === undefined ? {} : { head }) }} />
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

function OneSwitch({ store, sizes, place }: SwitchesProps & { place: Switch }) {
  const text = useTexts(store, SWITCH_TEXTS);
  const placeName = usePlaceName(store);
  const { interventions } = store.state;
  const state = stateOf(interventions, place);
  const isOff = place.head !== undefined && stateOf(interventions, { stack: place.stack, sublayer: place.sublayer, layer: place.layer }) === "remove";
  const next: SwitchState = state === "normal" ? "remove" : state === "remove" && place.sublayer !== "feed_forward" ? "uniform" : "normal";
  const name = text.described(placeName(place), text[state]);
  return (
    <button
      type="button" class={`switch ${state} ${isOff ? "inherited" : ""}`} aria-label={name} title={name} data-state={state} data-stack={place.stack}
      data-sublayer={place.sublayer} data-layer={place.layer} data-head={place.head ?? "all"}
      onClick={() => store.update({ interventions: withState(interventions, place, next, sizes) })}
    >
      {MARKS[state]}
    </button>
  );
}
