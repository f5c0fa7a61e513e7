// Behaviour that the SDK hides: the handshake of idempotent producers, and batches encoded by hand.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import rhea from "rhea";
import { createHub, producerOf, read } from "../hubs.mjs";
import { connected as onConnection } from "../management.mjs";
import { bodies, useBroker } from "../steps.mjs";

const context = useBroker({ queues: [] });
const BATCH_FORMAT = 0x80013700;
const IDEMPOTENT = "com.microsoft:idempotent-producer";
const ID = "com.microsoft:producer-id";
const EPOCH = "com.microsoft:producer-epoch";
const NUMBER = "com.microsoft:producer-sequence-number";
const { wrap_int, wrap_long, wrap_short } = rhea.types;

let senderCount = 0;

const connected = (action) => onConnection(context.broker, action);

async function openIdempotent(connection, hub, properties = {}) {
  const name = `producer-${senderCount++}`;
  const sender = connection.open_sender({ name, target: `${hub}/Partitions/0`, desired_capabilities: IDEMPOTENT, properties });
  const refused = once(sender, "sender_error").then(() => Promise.reject(new Error(String(sender.error.condition))));
  await Promise.race([once(sender, "sendable"), refused]);
  return sender;
}

const identity = (sender) => ({ id: sender.remote.attach.properties[ID], epoch: sender.remote.attach.properties[EPOCH] });
const lastNumber = (sender) => sender.remote.attach.properties[NUMBER];

function stamped(body, { id, epoch }, number) {
  return { body, message_annotations: { [ID]: wrap_long(id), [EPOCH]: wrap_short(epoch), [NUMBER]: wrap_int(number) } };
}

async function outcome(sender, message, format) {
  const delivery = sender.send(message, undefined, format);
  await once(sender, "settled");
  const error = delivery.remote_state?.error;
  return error ? String(error.condition) : delivery.remote_state.constructor.composite_type;
}

function batch(...messages) {
  const section = (bytes) => {
    const header = Buffer.from([0x00, 0x53, 0x75, 0xb0, 0, 0, 0, 0]);
    header.writeUInt32BE(bytes.length, 4);
    return Buffer.concat([header, bytes]);
  };
  return Buffer.concat(messages.map((message) => section(rhea.message.encode(message))));
}

async function contentOf(hub, count) {
  const events = await read(context.broker, hub, count, { skipParsingBodyAsJson: true });
  return bodies(events).map(String);
}

test("a producer gets an identity on request, and its repetitions are dropped", () =>
  connected(async (connection) => {
    const hub = await createHub(context.broker);
    const sender = await openIdempotent(connection, hub);
    const me = identity(sender);
    assert.ok(me.id !== undefined && me.epoch !== undefined);
    const first = lastNumber(sender) + 1;
    assert.equal(await outcome(sender, stamped("a", me, first)), "accepted");
    assert.equal(await outcome(sender, batch(stamped("b", me, first + 1), stamped("c", me, first + 2)), BATCH_FORMAT), "accepted");
    assert.equal(await outcome(sender, stamped("a", me, first)), "accepted");
    assert.equal(await outcome(sender, batch(stamped("b", me, first + 1), stamped("c", me, first + 2)), BATCH_FORMAT), "accepted");
    assert.equal(await outcome(sender, stamped("gap", me, first + 9)), "com.microsoft:out-of-order-sequence");
    assert.equal(await outcome(sender, stamped("d", me, first + 3)), "accepted");
    assert.deepEqual(await contentOf(hub, 4), ["a", "b", "c", "d"]);
    const producer = producerOf(context.broker, hub);
    assert.equal((await producer.getPartitionProperties("0")).lastEnqueuedSequenceNumber, 3);
    await producer.close();
  }));

test("a producer that reattaches with a higher epoch continues, and its older link is detached", () =>
  connected(async (connection) => {
    const hub = await createHub(context.broker);
    const older = await openIdempotent(connection, hub);
    const me = identity(older);
    const first = lastNumber(older) + 1;
    assert.equal(await outcome(older, stamped("a", me, first)), "accepted");
    const next = { id: me.id, epoch: me.epoch + 1 };
    const newer = await openIdempotent(connection, hub, { [ID]: wrap_long(next.id), [EPOCH]: wrap_short(next.epoch), [NUMBER]: null });
    assert.deepEqual([identity(newer), lastNumber(newer)], [next, first]);
    assert.equal(await outcome(newer, stamped("b", next, first + 1)), "accepted");
    const gone = once(older, "sender_error");
    assert.equal(await outcome(older, stamped("late", me, first + 1)), "com.microsoft:producer-epoch-stolen");
    await gone;
    assert.equal(String(older.error.condition), "com.microsoft:producer-epoch-stolen");
    const stale = { [ID]: wrap_long(me.id), [EPOCH]: wrap_short(me.epoch), [NUMBER]: wrap_int(first) };
    await assert.rejects(openIdempotent(connection, hub, stale), /producer-epoch-stolen/);
    assert.deepEqual(await contentOf(hub, 2), ["a", "b"]);
  }));

test("a batch for two partition keys is rejected as a whole", () =>
  connected(async (connection) => {
    const hub = await createHub(context.broker);
    const sender = connection.open_sender({ target: hub });
    await once(sender, "sendable");
    const keyed = (body, key) => ({ body, message_annotations: { "x-opt-partition-key": key } });
    assert.notEqual(await outcome(sender, batch(keyed("a", "one"), keyed("b", "two")), BATCH_FORMAT), "accepted");
    assert.equal(await outcome(sender, batch(keyed("c", "one"), keyed("d", "one")), BATCH_FORMAT), "accepted");
    assert.deepEqual(await contentOf(hub, 2), ["c", "d"]);
  }));

test("a malformed batch is rejected and none of it is stored", () =>
  connected(async (connection) => {
    const hub = await createHub(context.broker);
    const sender = connection.open_sender({ target: hub });
    await once(sender, "sendable");
    const good = batch({ body: "good" });
    const bad = Buffer.concat([good, good.subarray(0, good.length - 3)]);
    assert.notEqual(await outcome(sender, bad, BATCH_FORMAT), "accepted");
    assert.equal(await outcome(sender, good, BATCH_FORMAT), "accepted");
    assert.deepEqual(await contentOf(hub, 1), ["good"]);
  }));
