/** The right half of the page: the views as tabs, and the one that is chosen. */

import type { ComponentType } from "preact";

import { ChangedBanner } from "../components/changed_banner.js";
import type { Session } from "../session.js";
import { useStore, VIEWS, type ViewName } from "../state.js";
import { useTexts, VIEW_TITLES } from "../text.js";
import { AttentionView } from "./attention.js";
import { BeamView } from "./beam.js";
import { DecodingView } from "./decoding.js";
import { ExplanationView } from "./explanation.js";
import { FeedForwardView } from "./feed_forward.js";
import { HeadView } from "./head.js";
import { NormsView } from "./norms.js";
import { OverTimeView } from "./over_time.js";
import { PositionsView } from "./positions.js";
import { ResidualView } from "./residual.js";
import { WhatIfView } from "./what_if.js";

const COMPONENTS: Record<ViewName, ComponentType<{ session: Session }>> = {
  decoding: DecodingView,
  attention: AttentionView,
  head: HeadView,
  beam: BeamView,
  positions: PositionsView,
  norms: NormsView,
  residual: ResidualView,
  feed_forward: FeedForwardView,
  what_if: WhatIfView,
  explanation: ExplanationView,
  over_time: OverTimeView,
};

export function Lens({ session }: { session: Session }) {
  const { store } = session;
  const titles = useTexts(store, VIEW_TITLES);
  const view = useStore(store, () => store.state.view);
  const View = COMPONENTS[view];
  const choose = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = VIEWS[(VIEWS.indexOf(view) + step + VIEWS.length) % VIEWS.length] ?? view;
    store.update({ view: next });
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <main class="lens">
      <ChangedBanner session={session} />
      <div class="tabs" role="tablist" onKeyDown={choose}>
        {VIEWS.map((name) => (
          <button
            key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={name === view} aria-controls="view" tabIndex={name === view ? 0 : -1}
            onClick={() => store.update({ view: name })}
          >
            {titles[name]}
          </button>
        ))}
      </div>
      <section id="view" role="tabpanel" aria-labelledby={`tab-${view}`} class={`view view-${view}`}>
        <h2 class="visually-hidden">{titles[view]}</h2>
        <View key={view} session={session} />
      </section>
    </main>
  );
}
