/** The page of `heedful see`: reads the address, loads the site's models, and shows the application. */

import "./page.css";

import { render } from "preact";

import { App } from "./app.js";
import { firstAddress, loadSite } from "./model/site.js";
import { Session } from "./session.js";
import { readState, Store } from "./state.js";

const store = new Store(readState(firstAddress(), navigator.languages));
store.followAddress();

const root = document.body.appendChild(document.createElement("div"));
root.id = "app";
const session = new Session(store, loadSite(new URL("site.json", document.baseURI)));
render(<App session={session} />, root);
