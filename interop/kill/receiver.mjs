// Receives and settles like a worker: usually at once, sometimes later, sometimes with an abandon, sometimes never,
// sometimes too late. Arguments: port, folder of logs, party, seed.
import { Dialler, QUEUE, obey } from "./dial.mjs";
import { StepLog } from "./log.mjs";
import { isIntact } from "./message.mjs";
import { Random } from "./random.mjs";
import { tokenText } from "./token.mjs";

const CREDIT = 50;
const TOO_LATE_MS = 5300;
const DONE = { complete: "completed", abandon: "abandoned" };
const OUTCOME = { complete: "accepted", abandon: "modified" };
const IDLE_UNTIL_DRAINED_MS = 15_000;

const [port, folder, party, seed] = process.argv.slice(2);
const log = new StepLog(folder, party);
const random = new Random(Number(seed));
let draining = false;
let lastReceived = Date.now();

const dialler = new Dialler(Number(port), log, (connection) => {
  const options = { source: QUEUE, credit_window: CREDIT, autoaccept: false, rcv_settle_mode: 1 };
  const receiver = connection.open_receiver(options);
  receiver.on("message", ({ message, delivery }) => {
    lastReceived = Date.now();
    const id = message.message_id;
    const token = tokenText(delivery.tag);
    const until = Number(message.message_annotations["x-opt-locked-until"]);
    const sequence = Number(message.message_annotations["x-opt-sequence-number"]);
    log.write("received", { id, token, sequence, until, count: message.delivery_count ?? 0, intact: isIntact(id, message.body) });
    decide({ connection, delivery, id, token });
  });
  receiver.on("settled", ({ delivery }) => {
    const { id, token, step } = delivery.own;
    const condition = delivery.remote_state?.error?.condition;
    const outcome = delivery.remote_state?.constructor.composite_type;
    if (condition) log.write("refused", { id, token, condition });
    else if (outcome === OUTCOME[step]) log.write(DONE[step], { id, token });
    else log.write("trouble", { event: "answer", what: `${step} of ${id} was answered with ${outcome}` });
  });
});

function decide(held) {
  const dice = random.next();
  if (draining || dice < 0.85) return complete(held);
  if (dice < 0.9) return setTimeout(() => complete(held), random.between(50, 500));
  // rhea quirk: if two settlements are sent together, it uses the outcome of the first for both.
  if (dice < 0.95) return setImmediate(() => settle(held, "abandon", () => held.delivery.modified({ delivery_failed: true })));
  // The rest are workers that die during their work, or that settle after the lock has expired.
  if (dice > 0.98) setTimeout(() => complete(held), TOO_LATE_MS);
}

function complete(held) {
  settle(held, "complete", () => held.delivery.accept());
}

function settle({ connection, delivery, id, token }, step, act) {
  if (!connection.alive) return;
  delivery.own = { id, token, step };
  log.write(step, { id, token });
  act();
}

obey({
  drain: () => {
    draining = true;
    lastReceived = Date.now();
    setInterval(() => {
      if (Date.now() - lastReceived < IDLE_UNTIL_DRAINED_MS) return;
      dialler.stop();
      process.exit(0);
    }, 100);
  },
});
