// Placement of events in partitions, their contents after a round trip, and the properties of hubs and partitions.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { EventHubBufferedProducerClient } from "@azure/event-hubs";
import { call } from "../api.mjs";
import { createHub, producerOf, publish, read } from "../hubs.mjs";
import { CLIENT_OPTIONS, bodies, until, useBroker } from "../steps.mjs";

const context = useBroker({ queues: [] });
const open = [];
after(() => Promise.all(open.map((client) => client.close())));

async function fresh(partitionCount = 1, settings = {}) {
  const hub = await createHub(context.broker, partitionCount, settings);
  const producer = producerOf(context.broker, hub);
  open.push(producer);
  return { hub, producer };
}

async function counts(producer) {
  const ids = await producer.getPartitionIds();
  const shown = await Promise.all(ids.map((id) => producer.getPartitionProperties(id)));
  return shown.map((partition) => partition.lastEnqueuedSequenceNumber + 1);
}

const isRecent = (date) => Math.abs(Date.now() - date.getTime()) < 3_600_000;

test("a hub has properties", async () => {
  const { hub, producer } = await fresh(3);
  const { createdOn, ...shown } = await producer.getEventHubProperties();
  assert.ok(isRecent(createdOn));
  assert.deepEqual({ name: shown.name, partitionIds: shown.partitionIds }, { name: hub, partitionIds: ["0", "1", "2"] });
});

test("an empty and a filled partition have properties", async () => {
  const { hub, producer } = await fresh(2);
  const empty = await producer.getPartitionProperties("0");
  assert.equal(empty.lastEnqueuedOnUtc.getTime(), -62135596800000);
  await publish(producer, ["a", "b"], { partitionId: "1" });
  const filled = await producer.getPartitionProperties("1");
  assert.ok(isRecent(filled.lastEnqueuedOnUtc));
  const exact = ({ eventHubName, partitionId, beginningSequenceNumber, lastEnqueuedSequenceNumber, lastEnqueuedOffset, isEmpty }) =>
    [eventHubName, partitionId, beginningSequenceNumber, lastEnqueuedSequenceNumber, String(lastEnqueuedOffset), isEmpty];
  assert.deepEqual(exact(empty), [hub, "0", -1, -1, "-1", true]);
  assert.deepEqual(exact(filled), [hub, "1", 0, 1, "1", false]);
});

test("missing hubs and partitions are rejected", async () => {
  const { producer } = await fresh(2);
  const invalid = { code: "ArgumentOutOfRangeError", message: /The specified partition is invalid for an EventHub partition sender or receiver/ };
  await assert.rejects(producer.getPartitionProperties("2"), invalid);
  await assert.rejects(publish(producer, ["x"], { partitionId: "7" }), invalid);
  const nowhere = producerOf(context.broker, "no-such-hub", { retryOptions: { maxRetries: 0 } });
  open.push(nowhere);
  await assert.rejects(nowhere.getEventHubProperties(), { code: "MessagingEntityNotFoundError" });
  await assert.rejects(publish(nowhere, ["x"]), { code: "MessagingEntityNotFoundError" });
});

test("the partition count of a hub cannot be reduced", async () => {
  const { hub } = await fresh(3);
  await assert.rejects(call(context.broker, "PUT", ["hubs", hub], { partitionCount: 2 }), /partition/i);
});

test("all parts of an event round-trip", async () => {
  const { hub, producer } = await fresh();
  const properties = { text: "größer", number: 7, real: 0.5, flag: true, when: new Date(1_700_000_000_123) };
  const sent = { body: { deep: [1, { two: null }] }, contentType: "application/json", correlationId: "c-1", messageId: "m-1", properties };
  await producer.sendBatch([sent]);
  const [event] = await read(context.broker, hub, 1);
  assert.deepEqual(event.body, sent.body);
  assert.deepEqual([event.contentType, event.correlationId, event.messageId], ["application/json", "c-1", "m-1"]);
  const { when, ...rest } = event.properties;
  assert.equal(new Date(when).getTime(), 1_700_000_000_123);
  assert.deepEqual(rest, { text: "größer", number: 7, real: 0.5, flag: true });
  assert.deepEqual([event.sequenceNumber, String(event.offset), event.partitionKey], [0, "0", undefined]);
  assert.ok(isRecent(event.enqueuedTimeUtc));
});

test("every kind of body arrives unchanged", async () => {
  const { hub, producer } = await fresh();
  const kinds = [
    { bodyType: "data", body: Buffer.from([0, 1, 255]) },
    { bodyType: "value", body: { key: [1, "two"] } },
    { bodyType: "sequence", body: [[1, "two"], [null]] },
  ];
  await producer.sendBatch(kinds.map((kind) => ({ ...kind, messageAnnotations: { "x-own": "kept" } })));
  const events = await read(context.broker, hub, 3, { skipParsingBodyAsJson: true });
  assert.deepEqual(bodies(events), bodies(kinds));
  assert.deepEqual(events.map((event) => event.getRawAmqpMessage().bodyType), ["data", "value", "sequence"]);
  assert.deepEqual(events.map((event) => event.systemProperties?.["x-own"] ?? event.getRawAmqpMessage().messageAnnotations["x-own"]), ["kept", "kept", "kept"]);
});

test("a body can be null", async () => {
  const { hub, producer } = await fresh();
  await producer.sendBatch([{ body: null }, { body: null, bodyType: "data" }, { body: null, bodyType: "sequence" }]);
  assert.deepEqual(bodies(await read(context.broker, hub, 3)), [null, null, null]);
});

// The partition of each key in a hub with thirty-two partitions, by the hash of the service as published in its SDKs.
const VECTORS = {
  a: 28, ab: 13, abc: 17, abcd: 6, abcde: 1, abcdefg: 8, abcdefgh: 26, abcdefghijk: 20, abcdefghijkl: 5, abcdefghijklm: 15, 7: 31, 131: 2,
  pk1: 13, "device-42": 12, "customer/0001": 23, "The quick brown fox jumps over the lazy dog": 1, é: 12, ключ: 14, 日本語: 25,
}; // prettier-ignore

test("a key determines the partition, as in the service", async () => {
  const { hub, producer } = await fresh(32);
  for (const key of Object.keys(VECTORS)) await publish(producer, [key], { partitionKey: key });
  const events = await read(context.broker, hub, Object.keys(VECTORS).length, { skipParsingBodyAsJson: true });
  const found = Object.fromEntries(events.map((event) => [event.partitionKey, Number(event.partitionId)]));
  assert.deepEqual(found, VECTORS);
});

test("events without a key or partition are spread", async () => {
  const { producer } = await fresh(4);
  for (let number = 0; number < 12; number++) await publish(producer, [number]);
  const found = await counts(producer);
  assert.equal(found.reduce((sum, count) => sum + count), 12);
  assert.ok(Math.min(...found) >= 2, `each partition must get a share: ${found}`);
});

test("a full batch is sent, and an event that is too large is rejected", async () => {
  const { hub, producer } = await fresh();
  const batch = await producer.createBatch();
  assert.ok(batch.maxSizeInBytes >= 1024 * 1024);
  while (batch.tryAdd({ body: `${batch.count}`.padEnd(5000) }));
  await producer.sendBatch(batch);
  const events = await read(context.broker, hub, batch.count);
  assert.deepEqual(events.map((event) => Number(event.body)), [...Array(batch.count).keys()]);
  await assert.rejects(producer.sendBatch([{ body: "x".repeat(2 * 1024 * 1024) }]));
  await publish(producer, ["next"]);
});

for (const enableIdempotentRetries of [false, true]) {
  test(`a buffered producer${enableIdempotentRetries ? " with idempotent retries" : ""} sends every event`, async () => {
    const { hub } = await fresh(4);
    const sent = [];
    const failed = [];
    const producer = new EventHubBufferedProducerClient(context.broker.connectionString, hub, {
      ...CLIENT_OPTIONS,
      enableIdempotentRetries,
      maxWaitTimeInMs: 100,
      onSendEventsSuccessHandler: ({ events, partitionId }) => sent.push(...events.map((event) => `${event.body}@${partitionId}`)),
      onSendEventsErrorHandler: ({ error }) => failed.push(error),
    });
    for (let number = 0; number < 200; number++) await producer.enqueueEvent({ body: `spread ${number}` });
    for (let number = 0; number < 20; number++) {
      await producer.enqueueEvent({ body: `one way ${number}` }, { partitionKey: "abcd" });
      await producer.enqueueEvent({ body: `told ${number}` }, { partitionId: "3" });
    }
    await producer.flush();
    await until(() => sent.length === 240 || failed.length > 0, "the confirmations");
    assert.deepEqual(failed, []);
    await producer.enqueueEvent({ body: "later" }, { partitionId: "3" });
    await until(() => sent.length === 241 || failed.length > 0, "the confirmation of the last");
    await producer.close();
    const events = await read(context.broker, hub, 241);
    assert.deepEqual(events.map((event) => `${event.body}@${event.partitionId}`).sort(), sent.sort());
    const of = (stem) => events.filter((event) => event.body.startsWith(stem));
    assert.deepEqual(bodies(of("one way")), [...Array(20).keys()].map((number) => `one way ${number}`));
    assert.deepEqual([...new Set(of("one way").map((event) => event.partitionId))], ["2"]);
    assert.deepEqual(bodies(of("told")), [...Array(20).keys()].map((number) => `told ${number}`));
  });
}
