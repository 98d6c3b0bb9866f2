/** A search tree in columns, one for each step. The children of a node stay together and in the order of their parents, so that no edges cross. */

import type { BeamNode } from "../../engine/src/index.js";

export interface Placed {
  /** Index among the nodes of the tree. */
  index: number;
  node: BeamNode;
  /** The row in its column, and the number of the column's rows. */
  row: number;
  of: number;
  /** Null at the first step. */
  parent: Placed | null;
}

export interface Column {
  step: number;
  nodes: Placed[];
  /** The number of pruned nodes that are left out. */
  hidden: number;
}

/** Place the nodes; of the pruned ones of a step only the best `numPruned`. Parents come before their children. */
export function columnsOf(nodes: readonly BeamNode[], numPruned: number): Column[] {
  const bySteps = new Map<number, [number, BeamNode][]>();
  for (const [index, node] of nodes.entries()) bySteps.set(node.step, [...(bySteps.get(node.step) ?? []), [index, node]]);
  const placed = new Map<number, Placed>();
  const columns: Column[] = [];
  for (const [step, all] of [...bySteps].sort(([one], [other]) => one - other)) {
    let pruned = 0;
    const shown = all.filter(([, { state, parent }]) => (parent < 0 || placed.has(parent)) && (state !== "pruned" || ++pruned <= numPruned));
    const rowOf = ([, { parent }]: [number, BeamNode]): number => placed.get(parent)?.row ?? -1;
    shown.sort((one, other) => rowOf(one) - rowOf(other));
    const of = shown.length + (shown.length < all.length ? 1 : 0);
    const column = shown.map(([index, node], row): Placed => ({ index, node, row, of, parent: placed.get(node.parent) ?? null }));
    for (const one of column) placed.set(one.index, one);
    columns.push({ step, nodes: column, hidden: all.length - shown.length });
  }
  return columns;
}

/** The nodes from the first step to `index`. */
export function pathOf(nodes: readonly BeamNode[], index: number): number[] {
  const path: number[] = [];
  for (let at = index; at >= 0; at = nodes[at]?.parent ?? -1) path.push(at);
  return path.reverse();
}
