import type { Session } from "../session.js";
import { useSession } from "../session.js";

export function FeedForwardView({ session }: { session: Session }) {
  useSession(session);
  return <p>{session.shown?.output}</p>;
}
