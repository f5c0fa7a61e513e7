// Publishes continuously to all partitions in turn, single events and batches. Each event has a unique, increasing id
// and is never sent twice. Arguments: port, folder of logs, party, seed.
import { Dialler, obey } from "../dial.mjs";
import { StepLog } from "../log.mjs";
import { Random } from "../random.mjs";
import { BATCH_FORMAT, HUB, batchOf, eventOf, partitions } from "./events.mjs";

const BURST_EVERY_MS = 20;
const SENDS_PER_BURST = 3;
const BATCH_ONE_IN = 3;
const BATCH_MAX = 5;
const IN_FLIGHT_MAX = 64;
const LAST_ANSWERS_MS = 5000;

const [port, folder, party, seed] = process.argv.slice(2);
const log = new StepLog(folder, party);
const random = new Random(Number(seed));
let number = 0;
let sendNumber = 0;
let stopping = false;
let inFlight = new Map();

const dialler = new Dialler(Number(port), log, (connection) => {
  const senders = partitions().map((partition) => connection.open_sender({ target: `${HUB}/Partitions/${partition}` }));
  const pending = new Map();
  inFlight = pending;
  const answered = (step) => (context) => {
    const send = pending.get(context.delivery.id);
    pending.delete(context.delivery.id);
    log.write(step, { send, condition: context.delivery.remote_state?.error?.condition });
  };
  connection.on("accepted", answered("published"));
  connection.on("rejected", answered("unpublished"));
  connection.on("released", answered("unpublished"));
  const timer = setInterval(() => burst(connection, senders, pending, timer), BURST_EVERY_MS);
});

function burst(connection, senders, pending, timer) {
  if (!connection.alive || stopping) return clearInterval(timer);
  for (let count = 0; count < SENDS_PER_BURST && pending.size < IN_FLIGHT_MAX; count++) {
    const partition = sendNumber % senders.length;
    if (!senders[partition].sendable()) return;
    publish(senders[partition], partition, pending);
  }
}

function publish(sender, partition, pending) {
  const size = random.next() * BATCH_ONE_IN < 1 ? 2 + Math.floor(random.between(0, BATCH_MAX - 1)) : 1;
  const ids = Array.from({ length: size }, () => `${party}-${number++}`);
  const send = `${party}/${sendNumber++}`;
  log.write("publish", { send, partition, ids });
  const delivery = size === 1 ? sender.send(eventOf(ids[0])) : sender.send(batchOf(ids), undefined, BATCH_FORMAT);
  pending.set(delivery.id, send);
}

obey({
  stop: async () => {
    stopping = true;
    const deadline = Date.now() + LAST_ANSWERS_MS;
    while (inFlight.size > 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
    dialler.stop();
    process.exit(0);
  },
});
