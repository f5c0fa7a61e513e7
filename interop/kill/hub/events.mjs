// Definitions that the parties of the hub share: its name, and how events are written, read and logged.
import { createRequire } from "node:module";
import { bodyOf, isIntact } from "../message.mjs";

const require = createRequire(new URL("../../js/package.json", import.meta.url));
const rhea = require("rhea");

export const HUB = "events";
export const GROUP = "$Default";
export const PARTITIONS = 3;
export const BATCH_FORMAT = 0x80013700;
const SELECTOR = "apache.org:selector-filter:string";
const BODY_SECTION = 0x75;

/** The configuration of the hub, which exists from the first start on. */
export const DECLARATION = `[hubs.${HUB}]\npartition-count = ${PARTITIONS}\n`;

export const partitions = () => [...Array(PARTITIONS).keys()];

export function eventOf(id) {
  return { message_id: id, body: { typecode: BODY_SECTION, content: bodyOf(id) } };
}

/** Encodes one publication of several events: each is a message in its own section. */
export function batchOf(ids) {
  const section = (bytes) => {
    const header = Buffer.from([0x00, 0x53, BODY_SECTION, 0xb0, 0, 0, 0, 0]);
    header.writeUInt32BE(bytes.length, 4);
    return Buffer.concat([header, bytes]);
  };
  return Buffer.concat(ids.map((id) => section(rhea.message.encode(eventOf(id)))));
}

/** Returns a source that starts after the event with this offset, or at the first event without one. */
export function sourceAfter(partition, offset) {
  const selector = `amqp.annotation.x-opt-offset > '${offset ?? "-1"}'`;
  const filter = { [SELECTOR]: rhea.types.wrap_described(selector, SELECTOR) };
  return { address: `${HUB}/ConsumerGroups/${GROUP}/Partitions/${partition}`, filter };
}

/** Logs an event, and returns its place. */
export function note(log, reading, partition, message) {
  const annotations = message.message_annotations;
  const sequence = Number(annotations["x-opt-sequence-number"]);
  const offset = String(annotations["x-opt-offset"]);
  const enqueued = Number(annotations["x-opt-enqueued-time"]);
  const id = message.message_id;
  log.write("event", { reading, partition, sequence, offset, enqueued, id, intact: isIntact(id, message.body) });
  return { sequence, offset };
}
