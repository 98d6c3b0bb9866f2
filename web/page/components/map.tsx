import type { Session } from "../session.js";
import { useSession } from "../session.js";

export function ModelMap({ session }: { session: Session }) {
  useSession(session);
  return <p class="muted small">{session.siteModel?.title}</p>;
}
