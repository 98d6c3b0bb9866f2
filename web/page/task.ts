/** Work that takes several traces: started when a view needs it, kept with its run, and cancelled when the view or the run changes. */

import { useEffect, useState } from "preact/hooks";

import type { Run, Session } from "./session.js";

export interface Task<Result> {
  result: Result | undefined;
  /** How many of the traces are done. */
  done: number;
  total: number;
}

/** `report` is called after each trace. Work ends early, with an exception, once `signal` is aborted. */
export type Work<Result> = (report: (done: number, total: number) => void, signal: AbortSignal) => Promise<Result>;

const results = new WeakMap<Run, Map<string, unknown>>();

/** The result of `work` for a run, if it is known. */
export function knownResult<Result>(run: Run, name: string): Result | undefined {
  return results.get(run)?.get(name) as Result | undefined;
}

/** The result of `work` for a run, under a name that says everything that it depends on apart from the run; null: not wanted yet. */
export function useTask<Result>(session: Session, run: Run | null, name: string | null, work: Work<Result>): Task<Result> {
  const [progress, setProgress] = useState({ run, name, done: 0, total: 0 });
  const known = run === null || name === null ? undefined : knownResult<Result>(run, name);
  useEffect(() => {
    if (run === null || name === null || results.get(run)?.has(name)) return;
    const controller = new AbortController();
    const { signal } = controller;
    const report = (done: number, total: number): void => {
      signal.throwIfAborted();
      setProgress({ run, name, done, total });
    };
    work(report, signal).then(
      (result) => {
        const kept = results.get(run) ?? new Map<string, unknown>();
        results.set(run, kept.set(name, result));
        if (!signal.aborted) setProgress({ run, name, done: 1, total: 1 });
      },
      (error: unknown) => {
        if (!signal.aborted) session.fail(error);
      },
    );
    return () => controller.abort(new Error("cancelled"));
  }, [run, name]);
  const isCurrent = progress.run === run && progress.name === name;
  return { result: known, done: isCurrent ? progress.done : 0, total: isCurrent ? progress.total : 0 };
}

/** Run `one` for each item, one after another, and report after each. */
export async function each<Item, Result>(
  items: readonly Item[],
  one: (item: Item) => Promise<Result>,
  report: (done: number, total: number) => void,
): Promise<Result[]> {
  const found: Result[] = [];
  report(0, items.length);
  for (const item of items) {
    found.push(await one(item));
    report(found.length, items.length);
  }
  return found;
}
