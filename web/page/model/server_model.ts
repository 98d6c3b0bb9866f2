/** A model that the server runs. */
export { RemoteModel as ServerModel } from "../../engine/src/index.js";
