// Sends continuously. Each message has a unique id and is never sent twice, so an id with two sequence numbers was
// stored twice by the broker. Arguments: port, folder of logs, party.
import { Dialler, QUEUE, obey } from "./dial.mjs";
import { StepLog } from "./log.mjs";
import { bodyOf } from "./message.mjs";

const BURST_COUNT = 6;
const BURST_EVERY_MS = 20;
const IN_FLIGHT_MAX = 64;
const LAST_ANSWERS_MS = 5000;

const [port, folder, party] = process.argv.slice(2);
const log = new StepLog(folder, party);
let number = 0;
let stopping = false;
let inFlight = new Map();

const dialler = new Dialler(Number(port), log, (connection) => {
  const sender = connection.open_sender({ target: QUEUE });
  const pending = new Map();
  inFlight = pending;
  const answered = (step) => (context) => {
    const id = pending.get(context.delivery.id);
    pending.delete(context.delivery.id);
    log.write(step, { id, condition: context.delivery.remote_state?.error?.condition });
  };
  sender.on("accepted", answered("confirmed"));
  sender.on("rejected", answered("refused"));
  sender.on("released", answered("refused"));
  const timer = setInterval(() => burst(connection, sender, pending, timer), BURST_EVERY_MS);
});

function burst(connection, sender, pending, timer) {
  if (!connection.alive || stopping) return clearInterval(timer);
  for (let count = 0; count < BURST_COUNT && pending.size < IN_FLIGHT_MAX && sender.sendable(); count++) {
    const id = `${party}-${number++}`;
    log.write("intent", { id });
    const delivery = sender.send({ message_id: id, body: { typecode: 0x75, content: bodyOf(id) } });
    pending.set(delivery.id, id);
  }
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
