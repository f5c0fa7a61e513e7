// Producers that number their events: repeated events are stored once, and a producer with a wrong number or epoch is
// rejected.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { after, before, test } from "node:test";
import { Broker, freeFixedPort } from "../broker.mjs";
import { createHub, producerOf, publish, read } from "../hubs.mjs";
import { bodies, sleep } from "../steps.mjs";

let broker;
before(async () => {
  broker = await Broker.start({ listen: `127.0.0.1:${await freeFixedPort()}` });
});
after(() => broker.stop());

/**
 * Creates an idempotent producer. The SDK restricts this option to its buffered producer, which accepts no `options`;
 * the SDK's own tests use the same way.
 */
function idempotent(hub, options, at = broker) {
  const producer = producerOf(at, hub, { retryOptions: { maxRetries: 5, retryDelayInMs: 100, timeoutInMs: 3_000 } });
  producer._enableIdempotentRetries = true;
  if (options) producer._partitionOptions = { 0: options };
  return producer;
}

const state = (producer) => producer.getPartitionPublishingProperties("0");
const to = { partitionId: "0" };

/** Starts a proxy that forwards everything until it is set to withhold the broker's answers. */
async function proxy() {
  const pairs = new Set();
  const shared = { isMute: false };
  const server = createServer((client) => {
    const pair = [client, connect(Number(broker.address.split(":").at(-1)), "127.0.0.1")];
    pairs.add(pair);
    pair[0].on("data", (bytes) => pair[1].write(bytes));
    pair[1].on("data", (bytes) => shared.isMute || pair[0].write(bytes));
    const end = () => pair.forEach((socket) => socket.destroy());
    for (const socket of pair) socket.on("error", end).on("close", end);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  shared.connectionString = broker.connectionString.replace(broker.address, `127.0.0.1:${server.address().port}`);
  shared.cut = () => {
    pairs.forEach((pair) => pair.forEach((socket) => socket.destroy()));
    pairs.clear();
    shared.isMute = false;
  };
  shared.close = () => server.close(shared.cut());
  return shared;
}

for (const restarts of [false, true]) {
  test(`an event whose confirmation was lost is stored once${restarts ? ", also after the broker was killed" : ""}`, async () => {
    const hub = await createHub(broker);
    const between = await proxy();
    const producer = idempotent(hub, undefined, between);
    const observer = producerOf(broker, hub);
    const stored = async () => (await observer.getPartitionProperties("0")).lastEnqueuedSequenceNumber + 1;
    await publish(producer, ["one"], to);
    between.isMute = true;
    const sending = publish(producer, ["two", "three"], to);
    while ((await stored()) < 3) await sleep(20);
    if (restarts) {
      await broker.kill();
      await broker.start();
    }
    between.cut();
    await sending;
    await publish(producer, ["four"], to);
    assert.equal((await state(producer)).lastPublishedSequenceNumber, 4);
    assert.deepEqual(bodies(await read(broker, hub, 4)), ["one", "two", "three", "four"]);
    assert.equal(await stored(), 4);
    await Promise.all([producer.close(), observer.close()]);
    between.close();
  });
}

test("a producer that continues below its last number is rejected", async () => {
  const hub = await createHub(broker);
  const first = idempotent(hub);
  await publish(first, ["one", "two", "three", "four", "five"], to);
  const { producerGroupId, lastPublishedSequenceNumber } = await state(first);
  assert.equal(lastPublishedSequenceNumber, 5);
  const second = idempotent(hub, { producerGroupId, startingSequenceNumber: 1 });
  await assert.rejects(publish(second, ["six as two"], to), { code: "SequenceOutOfOrderError" });
  assert.equal((await first.getPartitionProperties("0")).lastEnqueuedSequenceNumber, 4);
  await Promise.all([first.close(), second.close()]);
});

test("epochs that are too low are rejected", async () => {
  const hub = await createHub(broker);
  const negative = idempotent(hub, { ownerLevel: -1 });
  await assert.rejects(publish(negative, ["x"], to), { code: "ArgumentOutOfRangeError" });
  const older = idempotent(hub);
  await publish(older, ["one"], to);
  const { producerGroupId, ownerLevel } = await state(older);
  const newer = idempotent(hub, { producerGroupId, ownerLevel: ownerLevel + 1, startingSequenceNumber: 1 });
  await publish(newer, ["two"], to);
  await assert.rejects(publish(older, ["late"], to), { code: "ProducerDisconnectedError", message: /Received: 0, Current: 1/ });
  assert.deepEqual(bodies(await read(broker, hub, 2)), ["one", "two"]);
  await Promise.all([negative.close(), older.close(), newer.close()]);
});
