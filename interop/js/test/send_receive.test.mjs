// Sending and receiving in every way the SDK offers.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { assertEmpty, bodies, receive, receiveOne, send, until, useBroker } from "../steps.mjs";

const context = useBroker();

describe("sending", () => {
  test("one message arrives", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sender = client.createSender(queue);
    await sender.sendMessages({ body: "hello" });
    const message = await receiveOne(client.createReceiver(queue));
    assert.equal(message.body, "hello");
    assert.equal(message.deliveryCount, 0);
    assert.ok(message.messageId, "the broker must add a message id");
  });

  test("an array arrives in order", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sent = [...Array(50).keys()].map((number) => `entry ${number}`);
    await send(client, queue, ...sent);
    assert.deepEqual(bodies(await receive(client.createReceiver(queue), 50)), sent);
  });

  test("a batch arrives in order", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sender = client.createSender(queue);
    const batch = await sender.createMessageBatch();
    for (let number = 0; number < 100; number++) assert.ok(batch.tryAddMessage({ body: number }));
    await sender.sendMessages(batch);
    assert.deepEqual(bodies(await receive(client.createReceiver(queue), 100)), [...Array(100).keys()]);
  });

  test("a batch is full at the limit of the link", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sender = client.createSender(queue);
    const batch = await sender.createMessageBatch();
    assert.ok(batch.maxSizeInBytes >= 256 * 1024);
    while (batch.tryAddMessage({ body: Buffer.alloc(50_000) }));
    await sender.sendMessages(batch);
    const messages = await receive(client.createReceiver(queue), batch.count);
    assert.ok(messages.every((message) => message.body.length === 50_000));
  });

  test("a large body in many frames arrives unchanged", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const body = Buffer.from(Uint8Array.from({ length: 900 * 1024 }, (_, index) => (index * 7) % 251));
    await send(client, queue, body);
    const message = await receiveOne(client.createReceiver(queue));
    assert.ok(body.equals(message.body));
  });

  test("a message above the limit is rejected, and the sender stays usable", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sender = client.createSender(queue);
    await assert.rejects(sender.sendMessages({ body: Buffer.alloc(2 * 1024 * 1024) }), { code: "MessageSizeExceeded" });
    await sender.sendMessages({ body: "still here" });
    assert.equal((await receiveOne(client.createReceiver(queue))).body, "still here");
  });
});

describe("receiving", () => {
  test("peek-lock keeps a message until it is completed", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    await send(client, queue, "kept");
    const receiver = client.createReceiver(queue);
    const message = await receiveOne(receiver);
    assert.match(message.lockToken, /^[0-9a-f-]{36}$/);
    assert.ok(message.lockedUntilUtc > new Date());
    await receiver.completeMessage(message);
    await assertEmpty(client, queue);
  });

  test("receive-and-delete removes a message at once", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    await send(client, queue, "a", "b", "c");
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await receive(receiver, 3)), ["a", "b", "c"]);
    await receiver.close();
    await assertEmpty(client, queue);
  });

  test("the wait on an empty queue ends without messages", async () => {
    const { client, pool } = context;
    const receiver = client.createReceiver(pool.take());
    assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 500 }), []);
    assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 500 }), []);
  });

  test("the message pump delivers everything and completes it", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sent = [...Array(100).keys()];
    await send(client, queue, ...sent);
    const receiver = client.createReceiver(queue);
    const got = [];
    const errors = [];
    const pump = receiver.subscribe(
      { processMessage: async (message) => void got.push(message.body), processError: async (event) => void errors.push(event) },
      { maxConcurrentCalls: 5 },
    );
    await until(() => got.length === 100, "all messages pumped");
    await pump.close();
    await receiver.close();
    assert.deepEqual(got.sort((a, b) => a - b), sent);
    assert.deepEqual(errors, []);
    await assertEmpty(client, queue);
  });

  test("the pump gets messages that are sent later, and abandons them when a handler fails", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const receiver = client.createReceiver(queue);
    const counts = [];
    const pump = receiver.subscribe({
      processMessage: async (message) => {
        counts.push(message.deliveryCount);
        if (message.deliveryCount < 2) throw new Error("not yet");
      },
      processError: async () => {},
    });
    await send(client, queue, "third time lucky");
    await until(() => counts.length === 3, "three attempts");
    await pump.close();
    await receiver.close();
    assert.deepEqual(counts, [0, 1, 2]);
    await assertEmpty(client, queue);
  });

  test("the iterator yields each message", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    await send(client, queue, 1, 2, 3);
    const receiver = client.createReceiver(queue);
    const got = [];
    for await (const message of receiver.getMessageIterator()) {
      got.push(message.body);
      await receiver.completeMessage(message);
      if (got.length === 3) break;
    }
    assert.deepEqual(got, [1, 2, 3]);
    await receiver.close();
    await assertEmpty(client, queue);
  });

  test("competing receivers share a queue and never get the same message", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sent = [...Array(300).keys()];
    await send(client, queue, ...sent);
    const got = [[], [], []];
    const receivers = got.map(() => client.createReceiver(queue));
    const pumps = receivers.map((receiver, index) =>
      receiver.subscribe(
        { processMessage: async (message) => void got[index].push(message.body), processError: async () => {} },
        { maxConcurrentCalls: 4 },
      ),
    );
    await until(() => got.flat().length >= 300, "all messages shared out");
    await Promise.all(pumps.map((pump) => pump.close()));
    assert.deepEqual(got.flat().sort((a, b) => a - b), sent);
    assert.ok(got.every((part) => part.length > 0), "every receiver must get some");
    await Promise.all(receivers.map((receiver) => receiver.close()));
    await assertEmpty(client, queue);
  });
});
