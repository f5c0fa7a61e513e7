// Locks: expiry, renewal, late settlement; and properties that must be returned unchanged.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { assertEmpty, receiveOne, send, until, useBroker } from "../steps.mjs";

const context = useBroker();
// The SDK renews locks by default.
const WITHOUT_RENEWAL = { maxAutoLockRenewalDurationInMs: 0 };

async function given(kind, body) {
  const { client, pool } = context;
  const queue = pool.take(kind);
  await send(client, queue, body);
  return { client, queue, receiver: client.createReceiver(queue, WITHOUT_RENEWAL) };
}

describe("locks", () => {
  test("a message with an expired lock is redelivered with a higher count", async () => {
    const { receiver } = await given("plain", "slow work");
    for (let count = 0; count < 3; count++) {
      const message = await receiveOne(receiver);
      assert.equal(message.deliveryCount, count);
      await context.broker.clock.passBy(message.lockedUntilUtc);
    }
  });

  test("renewal extends the lock", async () => {
    const { client, queue, receiver } = await given("plain", "renewed");
    const { clock } = context.broker;
    const message = await receiveOne(receiver);
    const first = message.lockedUntilUtc;
    await clock.advance(20_000);
    assert.ok((await receiver.renewMessageLock(message)) > first);
    await clock.passBy(first);
    await receiver.completeMessage(message);
    await assertEmpty(client, queue);
  });

  test("the SDK's own renewal keeps a lock while a handler works", async () => {
    const { client, queue } = await given("lock5", "long work");
    const receiver = client.createReceiver(queue);
    const counts = [];
    let finished = false;
    const pump = receiver.subscribe({
      processMessage: async (message) => {
        counts.push(message.deliveryCount);
        const first = message.lockedUntilUtc;
        await until(() => message.lockedUntilUtc > first, "a renewal");
        finished = true;
      },
      processError: async () => {},
    });
    await until(() => finished, "the handler's end");
    await pump.close();
    await receiver.close();
    assert.deepEqual(counts, [0]);
    await assertEmpty(client, queue);
  });

  test("late settlement is rejected on the link", async () => {
    const { client, queue, receiver } = await given("plain", "late");
    const late = await receiveOne(receiver);
    await context.broker.clock.passBy(late.lockedUntilUtc);
    const other = client.createReceiver(queue, WITHOUT_RENEWAL);
    const again = await receiveOne(other);
    await assert.rejects(receiver.completeMessage(late), { code: "MessageLockLost" });
    await other.completeMessage(again);
  });

  test("late renewal is rejected by management", async () => {
    const { receiver } = await given("plain", "late");
    const late = await receiveOne(receiver);
    await context.broker.clock.passBy(late.lockedUntilUtc);
    await assert.rejects(receiver.renewMessageLock(late), { code: "MessageLockLost" });
  });

  test("late settlement of a deferred message is rejected by management", async () => {
    const { receiver } = await given("plain", "late");
    const message = await receiveOne(receiver);
    await receiver.deferMessage(message);
    const [late] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await context.broker.clock.passBy(late.lockedUntilUtc);
    await assert.rejects(receiver.completeMessage(late), { code: "MessageLockLost" });
  });
});

describe("properties", () => {
  test("are returned unchanged", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const sent = {
      body: { any: ["json", 1, null] },
      messageId: "id-1",
      correlationId: "correlation-1",
      contentType: "application/json",
      subject: "a subject",
      to: "somewhere",
      replyTo: "back here",
      replyToSessionId: "reply session",
      sessionId: "a session",
      partitionKey: "a session",
      applicationProperties: { text: "größer ✓", small: 7, negative: -7, fraction: 0.5, large: 2 ** 40, yes: true, no: false },
    };
    const timeToLive = 3_600_000;
    await client.createSender(queue).sendMessages({ ...sent, timeToLive });
    const message = await receiveOne(client.createReceiver(queue));
    for (const [name, value] of Object.entries(sent)) assert.deepEqual(message[name], value, name);
    // The SDK computes the difference between the sender's clock and the broker's, which includes the transfer time.
    assert.ok(Math.abs(message.timeToLive - timeToLive) < 20_000, `${message.timeToLive} ms to live`);
    assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, timeToLive);
  });

  test("value, sequence and data bodies are returned unchanged", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    const receiver = client.createReceiver(queue);
    const sender = client.createSender(queue);
    for (const [bodyType, body] of [["value", "text"], ["sequence", [[1, "two"], [3]]], ["data", Buffer.from("bytes")]]) {
      await sender.sendMessages({ body, bodyType });
      const message = await receiveOne(receiver);
      assert.equal(message._rawAmqpMessage.bodyType, bodyType);
      assert.deepEqual(message.body, body);
      await receiver.completeMessage(message);
    }
  });
});
