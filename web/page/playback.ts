/** Plays the decoding: shows its steps one after another. A new translation is played once while the decoding is shown. */

import type { Run, Session } from "./session.js";

const STEP_MILLISECONDS = 120;
const MAX_MILLISECONDS = 8000;

export class Playback {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private run: Run | null = null;
  private step: number;

  constructor(private readonly session: Session) {
    this.step = session.store.state.step;
    session.subscribe(() => this.followRun());
    session.store.subscribe(() => this.followStep());
  }

  get playing(): boolean {
    return this.session.store.playedStep !== null;
  }

  /** Start from the step that is shown, or from the first if it is the last. */
  start(): void {
    const { shown, store } = this.session;
    if (shown === null) return;
    const { step } = store.state;
    this.show(step < 0 || step >= shown.numSteps - 1 ? 0 : step);
  }

  pause(): void {
    const { store } = this.session;
    const step = store.playedStep;
    this.stop();
    if (step !== null) store.update({ step });
  }

  toggle(): void {
    if (this.playing) this.pause();
    else this.start();
  }

  private show(step: number): void {
    const { shown, store } = this.session;
    clearTimeout(this.timer);
    if (shown === null || step >= shown.numSteps - 1) {
      this.stop();
      store.update({ step: -1 });
      return;
    }
    this.step = store.state.step;
    store.setPlayedStep(step);
    this.timer = setTimeout(() => this.show(step + 1), Math.min(STEP_MILLISECONDS, MAX_MILLISECONDS / shown.numSteps));
  }

  private stop(): void {
    clearTimeout(this.timer);
    this.session.store.setPlayedStep(null);
  }

  /** Play a new translation from its first step that is not forced, unless a link names a step. */
  private followRun(): void {
    const { base, store } = this.session;
    if (base === this.run) return;
    this.run = base;
    this.stop();
    const { step, view, prefix } = store.state;
    if (base === null || step >= 0 || view !== "decoding" || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    if (prefix.length < base.numSteps) this.show(prefix.length);
  }

  /** Stop when the reader chooses a step. */
  private followStep(): void {
    const { step } = this.session.store.state;
    if (step === this.step) return;
    this.step = step;
    this.stop();
  }
}
