/** The page of `heedful serve`: asks the server what it can do, and shows the application. */

import "./page.css";

import { render } from "preact";

import { App } from "./app.js";
import { Session } from "./session.js";
import { firstState, Store } from "./state.js";

const store = new Store(firstState(location.hash, navigator.languages));
const root = document.body.appendChild(document.createElement("div"));
root.id = "app";
const session = new Session(store);
render(<App session={session} />, root);
void session.start();
