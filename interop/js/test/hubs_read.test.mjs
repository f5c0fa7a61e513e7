// Start positions of readers, consumer groups, and owner levels.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition, latestEventPosition } from "@azure/event-hubs";
import WebSocket from "ws";
import { KEY, KEY_NAME } from "../broker.mjs";
import { Reader, createHub, numbers, producerOf, publish, read, reading, refusal } from "../hubs.mjs";
import { CLIENT_OPTIONS, bodies, sleep, until } from "../steps.mjs";
import { useManagedBroker } from "../topics.mjs";

const context = useManagedBroker();
const open = [];
after(() => Promise.all(open.map((client) => client.close())));

async function fresh(count = 0, settings = {}) {
  const { broker } = context;
  const hub = await createHub(broker, 1, settings);
  const producer = producerOf(broker, hub);
  open.push(producer);
  for (let number = 0; number < count; number++) {
    await publish(producer, [`${number}`]);
    await sleep(3);
  }
  return { broker, hub, producer };
}

test("a reader can start at every position", async () => {
  const { broker, hub } = await fresh(10);
  const all = [...(await read(broker, hub, 10))];
  assert.deepEqual(numbers(all), [...Array(10).keys()]);
  const { offset, sequenceNumber, enqueuedTimeUtc } = all[7];
  const positions = [
    [{ offset }, 8],
    [{ offset, isInclusive: true }, 7],
    [{ sequenceNumber }, 8],
    [{ sequenceNumber, isInclusive: true }, 7],
    [{ enqueuedOn: enqueuedTimeUtc }, 8],
    [{ enqueuedOn: enqueuedTimeUtc.getTime() - 1 }, 7],
    [earliestEventPosition, 0],
  ];
  for (const [startPosition, first] of positions) {
    const events = await read(broker, hub, 10 - first, { startPosition, partition: "0" });
    assert.deepEqual(numbers(events), [...Array(10).keys()].slice(first), JSON.stringify(startPosition));
  }
});

test("a reader at the latest position receives only new events", async () => {
  const { broker, hub, producer } = await fresh(5);
  await reading(broker, hub, { startPosition: latestEventPosition, maxBatchSize: 1 }, async (reader) => {
    // The SDK does not report when the reader is attached, so more events are sent until it has received one.
    const deadline = Date.now() + 30_000;
    while (reader.events.length < 3 && Date.now() < deadline) {
      await publish(producer, ["probe"]);
      await sleep(50);
    }
    const [first, second, third] = numbers(await reader.receive(3));
    assert.ok(first >= 5);
    assert.deepEqual([second, third], [first + 1, first + 2]);
  });
});

test("positions after the end, and unknown groups, partitions and hubs are rejected", async () => {
  const { broker, hub } = await fresh(2);
  const beyond = await refusal(broker, hub, { partition: "0", startPosition: { sequenceNumber: 17 } });
  assert.match(beyond.message, /17/);
  const group = await refusal(broker, hub, { partition: "0", group: "nobody" });
  assert.equal(group.code, "MessagingEntityNotFoundError");
  const partition = await refusal(broker, hub, { partition: "5" });
  assert.equal(partition.code, "ArgumentOutOfRangeError");
  assert.match(partition.message, /The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and 0/);
  const nowhere = await refusal(broker, "no-such-hub", { partition: "0" });
  assert.equal(nowhere.code, "MessagingEntityNotFoundError");
});

test("consumer groups are independent of each other", async () => {
  const { broker, hub } = await fresh(3, { consumerGroups: ["one", "two"] });
  await reading(broker, hub, { group: "one", partition: "0", ownerLevel: 5 }, async (one) => {
    assert.deepEqual(bodies(await one.receive(3)), ["0", "1", "2"]);
    for (const group of ["two", "$default"]) {
      assert.deepEqual(bodies(await read(broker, hub, 3, { group, partition: "0", ownerLevel: 0 })), ["0", "1", "2"]);
    }
    assert.deepEqual(one.errors, []);
  });
});

test("each event has the last enqueued properties of its partition", async () => {
  const { broker, hub, producer } = await fresh();
  await publish(producer, ["a", "b", "c"]);
  await reading(broker, hub, { partition: "0", trackLastEnqueuedEventProperties: true }, async (reader) => {
    await reader.receive(3);
    const last = reader.tracked.at(-1);
    assert.deepEqual([last.sequenceNumber, String(last.offset)], [2, "2"]);
    assert.ok(Math.abs(Date.now() - last.enqueuedOn.getTime()) < 3_600_000);
    assert.ok(Math.abs(Date.now() - last.retrievedOn.getTime()) < 3_600_000);
  });
});

/** Asserts the SDK's sequence for an owner with a higher level: an error that is not retryable, then the end. */
async function assertEvicted(reader) {
  const error = await reader.failure();
  assert.deepEqual([error.code, error.retryable], ["ReceiverDisconnectedError", false]);
  await until(() => reader.ends.length > 0, "the end of the partition");
  assert.deepEqual(reader.ends[0], ["0", "OwnershipLost"]);
}

const owner = (broker, hub, ownerLevel) => new Reader(broker, hub, { partition: "0", ...(ownerLevel === undefined ? {} : { ownerLevel }) });

for (const [name, level] of Object.entries({ higher: 2, equal: 1 })) {
  test(`an owner of ${name} level takes the partition over`, async () => {
    const { broker, hub, producer } = await fresh(1);
    const older = owner(broker, hub, 1);
    const readers = [older];
    try {
      await older.receive(1);
      const newer = owner(broker, hub, level);
      readers.push(newer);
      await newer.receive(1);
      await assertEvicted(older);
      await publish(producer, ["second"]);
      assert.deepEqual(bodies(await newer.receive(2)), ["0", "second"]);
      assert.deepEqual(bodies(older.events), ["0"]);
    } finally {
      for (const reader of readers) await reader.close();
    }
  });
}

test("a reader with a lower level or none is rejected", async () => {
  const { broker, hub } = await fresh(1);
  await reading(broker, hub, { partition: "0", ownerLevel: 2 }, async (high) => {
    await high.receive(1);
    const lower = await refusal(broker, hub, { partition: "0", ownerLevel: 1 });
    assert.deepEqual([lower.code, lower.retryable], ["ReceiverDisconnectedError", false]);
    await refusal(broker, hub, { partition: "0" });
    assert.deepEqual(high.errors, []);
  });
});

test("five readers without a level are permitted and a sixth is not, until one with a level attaches", async () => {
  const { broker, hub } = await fresh(1);
  const readers = [...Array(5)].map(() => owner(broker, hub));
  try {
    for (const reader of readers) await reader.receive(1);
    const sixth = await refusal(broker, hub, { partition: "0" });
    assert.equal(sixth.code, "QuotaExceededError");
    // The SDK treats level 0 as no level.
    const exclusive = owner(broker, hub, 1);
    readers.push(exclusive);
    await exclusive.receive(1);
    for (const reader of readers.slice(0, 5)) await assertEvicted(reader);
  } finally {
    for (const reader of readers) await reader.close();
  }
});

test("events are sent and read over WebSockets", async () => {
  const { broker, hub } = await fresh();
  const ca = readFileSync(broker.certificate, "utf8");
  const place = `Endpoint=sb://${broker.tlsAddress}/;SharedAccessKeyName=${KEY_NAME};SharedAccessKey=${KEY}`;
  const options = { ...CLIENT_OPTIONS, webSocketOptions: { webSocket: WebSocket, webSocketConstructorOptions: { ca } } };
  const producer = new EventHubProducerClient(place, hub, options);
  const large = "x".repeat(500_000);
  await publish(producer, [large]);
  assert.deepEqual(await producer.getPartitionIds(), ["0"]);
  await producer.close();
  const consumer = new EventHubConsumerClient("$Default", place, hub, options);
  const got = await new Promise((resolve, reject) => {
    const processEvents = async (events) => void (events.length > 0 && resolve(events));
    consumer.subscribe({ processEvents, processError: async (error) => reject(error) }, { startPosition: earliestEventPosition });
  });
  assert.deepEqual(bodies(got), [large]);
  await consumer.close();
});
