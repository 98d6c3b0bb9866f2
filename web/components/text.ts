/** Texts in English and Chinese. Each component has its own, as `texts({ en: {…}, zh: {…} })`, and both have the same keys. */

import { type Observable, useStore } from "./store.js";

export type Language = "en" | "zh";

/** The store of a page, which knows the language of the page. */
export interface PageStore extends Observable {
  readonly state: { readonly language: Language };
}

type Widen<Text> = { [Key in keyof Text]: Text[Key] extends string ? string : Text[Key] };

export type Texts<Text> = Record<Language, Text>;

export function texts<Text extends object>(both: { en: Text; zh: Widen<Text> }): Texts<Widen<Text>> {
  return both as Texts<Widen<Text>>;
}

/** The texts in the page's language. */
export function useTexts<Text>(store: PageStore, both: Texts<Text>): Text {
  return both[useLanguage(store)];
}

export function useLanguage(store: PageStore): Language {
  return useStore(store, () => store.state.language);
}
