// A connection that is re-established milliseconds after the broker is up. The SDKs wait for seconds between attempts;
// with such pauses most kills would happen without any traffic.
import { createRequire } from "node:module";

/* rhea is installed with the other JavaScript tests. */
const require = createRequire(new URL("../js/package.json", import.meta.url));
const rhea = require("rhea");

export const QUEUE = "work";
const REDIAL_MS = 5;

/** Calls `onOpen(connection)` for each connection that opens, until `stop` is called. */
export class Dialler {
  constructor(port, log, onOpen) {
    this.port = port;
    this.log = log;
    this.onOpen = onOpen;
    this.running = true;
    this.dial();
  }

  dial() {
    const connection = rhea.create_container().connect({
      host: "127.0.0.1",
      port: this.port,
      username: "RootManageSharedAccessKey",
      password: "SAS_KEY_VALUE",
      reconnect: false,
    });
    this.connection = connection;
    connection.alive = true;
    connection.on("connection_open", () => this.onOpen(connection));
    connection.once("disconnected", () => this.redial(connection));
    connection.once("connection_close", () => this.redial(connection));
    // These events report a violation of the protocol by the broker, which a kill does not explain: the checker counts
    // them.
    for (const event of ["protocol_error", "error", "connection_error", "session_error", "sender_error", "receiver_error"]) {
      connection.on(event, (context) => this.log.write("trouble", { event, what: describe(context) }));
    }
  }

  redial(connection) {
    if (!connection.alive) return;
    connection.alive = false;
    if (this.running) setTimeout(() => this.dial(), REDIAL_MS);
  }

  stop() {
    this.running = false;
    this.connection.alive = false;
    this.connection.close();
  }
}

function describe(context) {
  const place = context?.sender ?? context?.receiver ?? context?.session ?? context?.connection;
  const error = context?.error ?? place?.error ?? context;
  return String(error?.condition ?? error?.message ?? error).slice(0, 300);
}

/** Handles orders of the parent process, and exits when the parent is gone: no party outlives the run. */
export function obey(orders) {
  process.on("message", ({ word, details }) => orders[word](details));
  process.on("disconnect", () => process.exit(1));
}
