// A plain AMQP 1.0 client, for protocol features that the SDK does not use or does not expose.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import rhea from "rhea";
import { connected as onConnection } from "../management.mjs";
import { until, useBroker } from "../steps.mjs";

const context = useBroker();
const BATCH_FORMAT = 0x80013700;

const connected = (action) => onConnection(context.broker, action);

async function openSender(connection, queue) {
  const sender = connection.open_sender({ target: queue });
  if (!sender.sendable()) await once(sender, "sendable");
  return sender;
}

/** Sends and waits for the outcome: "accepted" or the condition of the rejection. */
async function outcome(sender, message, format) {
  const delivery = sender.send(message, undefined, format);
  await once(sender, "settled");
  const error = delivery.remote_state?.error;
  return error ? String(error.condition) : delivery.remote_state.constructor.composite_type;
}

/** Gives credit and drains; returns the received messages. The end is a drained link or the use of the last credit. */
async function drain(connection, queue, credit = 100) {
  const messages = [];
  const receiver = connection.open_receiver({ source: queue, credit_window: 0, autoaccept: false });
  await once(receiver, "receiver_open");
  await new Promise((resolve) => {
    receiver.on("receiver_drained", resolve);
    receiver.on("message", ({ message }) => messages.push(message) === credit && resolve());
    receiver.drain = true;
    receiver.add_credit(credit);
  });
  receiver.close();
  return messages;
}

function dataSection(bytes) {
  const header = Buffer.from([0x00, 0x53, 0x75, 0xb0, 0, 0, 0, 0]);
  header.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([header, bytes]);
}

const encoded = (body) => rhea.message.encode({ body });

test("a send is accepted and delivered with the broker's annotations", () =>
  connected(async (connection) => {
    const queue = context.pool.take();
    const sender = await openSender(connection, queue);
    assert.ok(sender.max_message_size > 0, "the link must have a maximum message size");
    assert.equal(await outcome(sender, { body: "hello", message_id: "m-1" }), "accepted");
    const [message] = await drain(connection, queue);
    assert.equal(message.body, "hello");
    const annotations = message.message_annotations;
    assert.equal(annotations["x-opt-sequence-number"], 1);
    assert.ok(annotations["x-opt-enqueued-time"] instanceof Date || annotations["x-opt-enqueued-time"] > 0);
    assert.ok(annotations["x-opt-locked-until"] > annotations["x-opt-enqueued-time"]);
  }));

test("a batch of valid messages is stored in order", () =>
  connected(async (connection) => {
    const queue = context.pool.take();
    const sender = await openSender(connection, queue);
    const batch = Buffer.concat([dataSection(encoded("one")), dataSection(encoded("two"))]);
    assert.equal(await outcome(sender, batch, BATCH_FORMAT), "accepted");
    assert.deepEqual((await drain(connection, queue)).map((message) => message.body), ["one", "two"]);
  }));

test("a batch with one malformed message stores nothing", () =>
  connected(async (connection) => {
    const queue = context.pool.take();
    const sender = await openSender(connection, queue);
    const broken = Buffer.from([0x00, 0x53, 0x77, 0xff]);
    const batch = Buffer.concat([dataSection(encoded("good")), dataSection(broken), dataSection(encoded("good"))]);
    assert.notEqual(await outcome(sender, batch, BATCH_FORMAT), "accepted");
    assert.deepEqual(await drain(connection, queue), []);
  }));

test("a settled transfer is stored without an answer", () =>
  connected(async (connection) => {
    const queue = context.pool.take();
    const settled = connection.open_sender({ target: queue, snd_settle_mode: 1 });
    await once(settled, "sendable");
    settled.send({ body: "fire and forget" });
    // Transfers of one connection are handled in order, so the answer to this one also covers the settled one.
    assert.equal(await outcome(await openSender(connection, queue), { body: "answered" }), "accepted");
    assert.deepEqual((await drain(connection, queue)).map((message) => message.body), ["fire and forget", "answered"]);
  }));

test("hundreds of sends in flight are all answered", () =>
  connected(async (connection) => {
    const queue = context.pool.take();
    const sender = connection.open_sender({ target: queue });
    const count = 2000;
    let sent = 0;
    let accepted = 0;
    sender.on("accepted", () => accepted++);
    const sendMore = () => {
      while (sent < count && sender.sendable()) sender.send({ body: sent++ });
    };
    sender.on("sendable", sendMore);
    await until(() => accepted === count, "all answers");
    const messages = await drain(connection, queue, count);
    assert.deepEqual(messages.map((message) => message.body), [...Array(count).keys()]);
  }));

test("an unknown queue is rejected with the text that SDKs match", () =>
  connected(async (connection) => {
    const sender = connection.open_sender({ target: "no-such-queue" });
    await once(sender, "sender_error");
    assert.equal(sender.error.condition, "amqp:not-found");
    assert.match(sender.error.description, /The messaging entity '.*no-such-queue' could not be found/);
  }));
