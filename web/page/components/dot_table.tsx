/** A dot product as a table: its terms, or the first, the last and the largest of them, the bias and the sum. */

import "./dot_table.css";

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { importantTerms, type DotProduct } from "../measures/terms.js";
import type { Store } from "../state.js";
import { formatNumber, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: { sum: "Sum", bias: "bias", others: "others", all: "Show all terms", fewer: "Show fewer terms", index: "i", product: "product", token: "token" },
  zh: { sum: "总和", bias: "偏置", others: "其余", all: "显示全部项", fewer: "收起", index: "i", product: "乘积", token: "词元" },
});

/** A button that shows all terms, or few of them again. */
export function MoreTerms({ store, all, count, onToggle }: { store: Store; all: boolean; count: number; onToggle: () => void }) {
  const text = useTexts(store, TEXTS);
  return <button type="button" aria-pressed={all} data-action="all-terms" onClick={onToggle}>{all ? text.fewer : `${text.all} (${count})`}</button>;
}

export interface DotTableProps {
  store: Store;
  dot: DotProduct;
  /** The letters of the two vectors. */
  left: string;
  right: string;
  /** The tokens of the terms, where a term is a token. */
  tokens?: readonly string[] | undefined;
}

export function DotTable({ store, dot, left, right, tokens }: DotTableProps) {
  const text = useTexts(store, TEXTS);
  const [all, setAll] = useState(false);
  const few = importantTerms(dot.terms, tokens ? { ends: 1, top: 8 } : {});
  const [shown, numRest] = all ? [dot.terms, 0] : [few.shown, few.numRest];
  const rows: ComponentChildren[] = [];
  let last = -1;
  for (const { index, left: a, right: b, product } of shown) {
    if (index > last + 1) rows.push(<tr key={`gap ${index}`} class="muted"><td>⋮</td><td colSpan={3} /></tr>);
    last = index;
    rows.push(
      <tr key={index} data-term={index} data-product={product}>
        <td>{tokens ? `${index} ${tokens[index] ?? ""}` : index}</td><td>{formatNumber(a, 4)}</td><td>{formatNumber(b, 4)}</td><td>{formatNumber(product, 4)}</td>
      </tr>,
    );
  }
  return (
    <>
      <div class={`scroll terms ${all ? "all" : ""}`} tabIndex={0} role="region" aria-label={text.sum}>
        <table class="numbers">
          <thead><tr><th>{tokens ? text.token : text.index}</th><th>{left}<sub>i</sub></th><th>{right}<sub>i</sub></th><th>{text.product}</th></tr></thead>
          <tbody>
            {rows}
            {numRest > 0 && <tr class="muted" data-rest={few.rest}><td colSpan={3}>{text.others} ({numRest})</td><td>{formatNumber(few.rest, 4)}</td></tr>}
            {dot.bias !== 0 && <tr data-bias={dot.bias}><td colSpan={3}>{text.bias}</td><td>{formatNumber(dot.bias, 4)}</td></tr>}
          </tbody>
          <tfoot><tr data-sum={dot.sum}><th colSpan={3}>{text.sum}</th><th>{formatNumber(dot.sum, 6)}</th></tr></tfoot>
        </table>
      </div>
      {few.numRest > 0 && <MoreTerms store={store} all={all} count={dot.terms.length} onToggle={() => setAll(!all)} />}
    </>
  );
}
