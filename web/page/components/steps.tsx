/** The decoder's step: first, previous, play, next, last, and a slider. */

import "./steps.css";

import { currentStep, type Session, useSession } from "../session.js";
import { texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    first: "First step", previous: "Previous step", play: "Play", pause: "Pause", next: "Next step", last: "Last step", slider: "Step of the decoder",
    count: (step: number, total: number) => `Step ${step} of ${total}`,
  },
  zh: {
    first: "第一步", previous: "上一步", play: "播放", pause: "暂停", next: "下一步", last: "最后一步", slider: "解码步",
    count: (step: number, total: number) => `第 ${step} 步，共 ${total} 步`,
  },
});

const ICONS = {
  first: "M4 3v10M13 3L6 8l7 5z", previous: "M12 3L5 8l7 5z", play: "M4 2l10 6-10 6z", pause: "M5 3v10M11 3v10", next: "M4 3l7 5-7 5z", last: "M12 3v10M3 3l7 5-7 5z",
};

export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width={16} height={16} aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function StepControls({ session }: { session: Session }) {
  useSession(session);
  const { store, shown, playback } = session;
  const text = useTexts(store, TEXTS);
  const step = currentStep(session);
  const last = (shown?.numSteps ?? 1) - 1;
  const { playing } = playback;
  const button = (name: keyof typeof ICONS, disabled: boolean, act: () => void) => (
    <button type="button" class="icon-button" aria-label={text[name]} title={text[name]} disabled={disabled} onClick={act}><Icon name={name} /></button>
  );
  const go = (to: number): void => store.update({ step: Math.max(0, Math.min(last, to)) });
  return (
    <div class="steps" role="group" aria-label={text.slider}>
      {button("first", step === 0, () => go(0))}
      {button("previous", step === 0, () => go(step - 1))}
      {button(playing ? "pause" : "play", last === 0, () => playback.toggle())}
      {button("next", step === last, () => go(step + 1))}
      {button("last", step === last, () => go(last))}
      <input
        type="range" min={0} max={last} value={step} aria-label={text.slider} aria-valuetext={text.count(step + 1, last + 1)}
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <span class="number small" data-step={step}>{text.count(step + 1, last + 1)}</span>
    </div>
  );
}
