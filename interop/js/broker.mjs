// Starts a broker for tests, reads its addresses from its output, moves its clock, and stops it by its process id.
import { spawn } from "node:child_process";
import { openSync, closeSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 30_000;
// Ports below the range for outgoing connections. A client that keeps dialling a port of that range while the broker is
// down can connect to itself, and then the broker cannot bind the port.
const FIXED_PORT_MIN = 20_000;
const FIXED_PORT_MAX = 32_000;

export const KEY_NAME = "RootManageSharedAccessKey";
export const KEY = "SAS_KEY_VALUE";

// The test runner ends a file that exceeds its timeout with this signal; `exit` handlers must still run then.
process.once("SIGTERM", () => process.exit(1));

/**
 * The clock of a broker. A test moves it instead of waiting for the end of a lock, a time to live or a schedule. The
 * SDKs stay on real time: after a move their clocks are behind the broker's, and locks seem to last longer.
 */
export class Clock {
  constructor(address) {
    this.url = `http://${address}/clock`;
    this.aheadMs = 0;
  }

  now() {
    return Date.now() + this.aheadMs;
  }

  advance(ms) {
    return this.set(this.aheadMs + ms);
  }

  /** Moves the clock just past a moment, if the broker has not reached it yet. */
  passBy(moment) {
    return this.advance(Math.max(0, moment - this.now()) + 10);
  }

  /** Returns to the real time. */
  async reset() {
    if (this.aheadMs > 0) await this.set(0);
  }

  async set(aheadMs) {
    const answer = await fetch(this.url, { method: "PUT", body: String(Math.round(aheadMs)) });
    if (!answer.ok) throw new Error(`the broker does not move its clock: ${answer.status}`);
    this.aheadMs = aheadMs;
  }
}

/** One broker process with its data folder. It can be killed and restarted on the same ports and folder. */
export class Broker {
  constructor({ queues = [], keys = [], configs = [], storageKey, folder, ...places } = {}) {
    this.ownsFolder = folder === undefined;
    this.folder = folder ?? mkdtempSync(join(tmpdir(), "peeklock-interop-"));
    const { listen = "127.0.0.1:0", listenTls = "off", http = "off", https = "off" } = places;
    this.places = ["--listen", listen, "--listen-tls", listenTls, "--http", http, "--https", https];
    const { blobPort = "off", queuePort = "off" } = places;
    this.places.push("--blob-port", blobPort, "--queue-port", queuePort);
    this.storageKey = storageKey;
    // The broker has its built-in key only if no keys are given, so the tests give it together with others.
    this.keys = keys.length > 0 ? [`${KEY_NAME}=${KEY}:Manage`, ...keys] : [];
    this.options = ["--test-clock", ...queues.flatMap((queue) => ["--queue", queue]), ...this.keys.flatMap((key) => ["--key", key])];
    this.options.push(...configs.flatMap((path) => ["--config", path]));
    if (storageKey) this.options.push("--storage-key", storageKey);
    this.labels = {};
  }

  static async start(options) {
    const broker = new Broker(options);
    await broker.start();
    return broker;
  }

  /** Starts the process and returns at once; `ready` resolves when it serves. */
  spawn() {
    const binary = process.env.PEEKLOCK_BIN;
    if (!binary) throw new Error("PEEKLOCK_BIN does not name the broker to test; run `cargo xtask test --only js`");
    const log = openSync(this.logPath, "a");
    this.process = spawn(binary, ["serve", "--data", join(this.folder, "data"), ...this.places, ...this.options], { stdio: ["ignore", "pipe", log] });
    closeSync(log);
    // No broker may outlive its test process, regardless of how that ends.
    const child = this.process;
    const end = () => child.kill("SIGKILL");
    process.once("exit", end);
    child.once("exit", () => process.off("exit", end));
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.ready = this.readLabels();
    // A test that kills a broker before it is ready does not await `ready`; that must not count as an unhandled
    // rejection.
    this.ready.catch(() => {});
  }

  async start() {
    this.spawn();
    await this.ready;
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill("SIGTERM");
      const timer = setTimeout(() => this.process.kill("SIGKILL"), STOP_TIMEOUT_MS);
      await this.ended;
      clearTimeout(timer);
      if (this.process.signalCode === "SIGKILL") throw new Error("the broker did not stop on SIGTERM");
    }
    if (this.ownsFolder) rmSync(this.folder, { recursive: true, force: true });
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }

  get logPath() {
    return join(this.folder, "broker.log");
  }

  get address() {
    return this.labels["AMQP"];
  }

  get port() {
    return Number(this.address.split(":").at(-1));
  }

  get tlsAddress() {
    return this.labels["AMQP over TLS"];
  }

  get httpAddress() {
    return this.labels["HTTP"];
  }

  get certificate() {
    return this.labels["Certificate"];
  }

  /** Returns the printed connection string, or one with the given key: the broker prints no given key in full. */
  get connectionString() {
    return this.keys.length > 0 ? this.connectionStringOf(KEY_NAME, KEY) : this.labels["Connection string"];
  }

  connectionStringOf(keyName, key, address = this.address) {
    return `Endpoint=sb://${address};SharedAccessKeyName=${keyName};SharedAccessKey=${key};UseDevelopmentEmulator=true;`;
  }

  /** Returns the printed connection string, with the given key in place of the asterisks. */
  get storageConnectionString() {
    return this.labels["Storage string"].replace("AccountKey=***", `AccountKey=${this.storageKey}`);
  }

  async readLabels() {
    const labels = {};
    const failed = (why) => new Error(`the broker ${why}; it logged:\n${readFileSync(this.logPath, "utf8").slice(-4000)}`);
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(failed("is not ready in time")), START_TIMEOUT_MS);
      this.process.once("exit", () => {
        clearTimeout(timer);
        reject(failed("ended before it was ready"));
      });
      // The output is read after "Ready", too: a full pipe would block the broker.
      createInterface({ input: this.process.stdout }).on("line", (line) => {
        const [label, ...rest] = line.split("  ");
        labels[label] = rest.join("  ").trim();
        if (label !== "Ready") return;
        clearTimeout(timer);
        resolve();
      });
    });
    this.labels = labels;
    this.clock = new Clock(labels["Test clock"]);
  }
}

/** A stock of queues of each kind. Queues are declared when the broker starts, so each test takes unused ones. */
export class QueuePool {
  static kinds = { plain: "", lock5: ",lock=5s", count3: ",max-delivery=3" };
  static stock = 30;

  static declarations() {
    const numbers = [...Array(QueuePool.stock).keys()];
    return Object.entries(QueuePool.kinds).flatMap(([kind, settings]) => numbers.map((n) => `${kind}-${n}${settings}`));
  }

  taken = {};

  take(kind = "plain") {
    const number = this.taken[kind] ?? 0;
    if (number >= QueuePool.stock) throw new Error(`the stock of '${kind}' queues is used up; raise QueuePool.stock`);
    this.taken[kind] = number + 1;
    return `${kind}-${number}`;
  }
}

export async function freeFixedPort() {
  for (;;) {
    const port = FIXED_PORT_MIN + Math.floor(Math.random() * (FIXED_PORT_MAX - FIXED_PORT_MIN));
    if (await isFree(port)) return port;
  }
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
