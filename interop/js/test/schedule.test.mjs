// Scheduled messages, messages with a time to live, and duplicates.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { call, updateQueue } from "../api.mjs";
import { DEAD_LETTER, assertEmpty, bodies, inMs, receive, receiveDeadLetter, receiveOne, send, until, useBroker } from "../steps.mjs";

const context = useBroker();
const FAR_MS = 3_600_000;
const SOON_MS = 300_000;

async function given(settings) {
  const { client, create } = context;
  const queue = await create(settings);
  return { client, queue, sender: client.createSender(queue), receiver: client.createReceiver(queue) };
}

describe("scheduling", () => {
  test("a scheduled message is delivered when it is due", async () => {
    const { sender, receiver } = await given();
    const due = inMs(SOON_MS);
    const [number] = await sender.scheduleMessages({ body: "later" }, due);
    const [peeked] = await receiver.peekMessages(1);
    assert.equal(peeked.state, "scheduled");
    assert.equal(peeked.sequenceNumber.toString(), number.toString());
    assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), due.getTime());
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
    await context.broker.clock.passBy(due);
    const message = await receiveOne(receiver);
    assert.deepEqual([message.body, message.deliveryCount, message.state], ["later", 0, "scheduled"]);
  });

  test("many messages are scheduled at once and delivered in order", async () => {
    const { sender, receiver } = await given();
    const sent = [...Array(10).keys()];
    const numbers = await sender.scheduleMessages(sent.map((body) => ({ body })), inMs(SOON_MS));
    await context.broker.clock.advance(SOON_MS);
    assert.equal(new Set(numbers.map(String)).size, 10);
    assert.deepEqual(bodies(await receive(receiver, 10)), sent);
  });

  test("one or many messages can be cancelled, but only scheduled ones", async () => {
    const { client, queue, sender } = await given();
    const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], inMs(FAR_MS));
    const [one] = await sender.scheduleMessages({ body: "c" }, inMs(FAR_MS));
    await sender.cancelScheduledMessages(numbers);
    await sender.cancelScheduledMessages(one);
    await assertEmpty(client, queue);
    await assert.rejects(sender.cancelScheduledMessages(one), { code: "MessageNotFound" });
  });

  test("the property schedules a message, and a time in the past means now", async () => {
    const { sender, receiver } = await given();
    await sender.sendMessages([
      { body: "later", scheduledEnqueueTimeUtc: inMs(SOON_MS) },
      { body: "past", scheduledEnqueueTimeUtc: inMs(-FAR_MS) },
    ]);
    await sender.scheduleMessages({ body: "past, too" }, inMs(-FAR_MS));
    const past = await receive(receiver, 2);
    assert.deepEqual(bodies(past), ["past", "past, too"]);
    for (const message of past) await receiver.completeMessage(message);
    await context.broker.clock.advance(SOON_MS);
    assert.equal((await receiveOne(receiver)).body, "later");
  });
});

describe("time to live", () => {
  test("an expired message is dropped", async () => {
    const { client, queue, sender, receiver } = await given();
    await sender.sendMessages([{ body: "short", timeToLive: 60_000 }, { body: "long" }]);
    await context.broker.clock.advance(60_000);
    assert.equal((await receiveOne(receiver)).body, "long");
    await assertEmpty(client, queue, DEAD_LETTER);
  });

  test("an expired message is dead-lettered if the queue is set to", async () => {
    const { client, queue, sender } = await given({ deadLetterOnExpiration: true });
    await sender.sendMessages({ body: "late", timeToLive: 60_000, messageId: "m" });
    await context.broker.clock.advance(60_000);
    const dead = await receiveDeadLetter(client, queue);
    assert.deepEqual([dead.body, dead.messageId, dead.deadLetterReason], ["late", "m", "TTLExpiredException"]);
    await assertEmpty(client, queue);
  });

  test("the queue's time to live is a default and a limit", async () => {
    const { sender, receiver } = await given({ defaultTimeToLive: "60000ms" });
    await sender.sendMessages([{ body: "none" }, { body: "more", timeToLive: FAR_MS }, { body: "less", timeToLive: 30_000 }]);
    const messages = await receive(receiver, 3);
    for (const [index, expected] of [60_000, 60_000, 30_000].entries()) {
      const { timeToLive, expiresAtUtc, enqueuedTimeUtc } = messages[index];
      // The SDK computes the difference between the sender's clock and the broker's, which includes the transfer time.
      assert.ok(Math.abs(timeToLive - expected) < 20_000, `${timeToLive} ms for ${expected} ms`);
      assert.equal(expiresAtUtc - enqueuedTimeUtc, expected);
    }
  });
});

describe("duplicates", () => {
  test("a repeated id is accepted and dropped until the window has passed", async () => {
    const { sender, receiver } = await given({ duplicateWindow: "60s" });
    await sender.sendMessages({ body: "first", messageId: "same" });
    await sender.sendMessages([{ body: "again", messageId: "same" }, { body: "other", messageId: "other" }]);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["first", "other"]);
    await context.broker.clock.advance(60_100);
    await sender.sendMessages({ body: "after", messageId: "same" });
    assert.deepEqual(bodies(await receive(receiver, 3)), ["first", "other", "after"]);
  });

  test("ids of different types differ", async () => {
    const { sender, receiver } = await given({ duplicateWindow: "60000ms" });
    await sender.sendMessages({ body: "text", messageId: "7" });
    await sender.sendMessages({ body: "number", messageId: 7 });
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["text", "number"]);
  });
});

describe("retries", () => {
  async function isDelayed(queue) {
    const [shown] = (await call(context.broker, "GET", ["queues", queue, "messages"])).items;
    return shown.state === "delayed";
  }

  // A test must take less real time than this between two moves of the clock.
  const MARGIN_MS = 25_000;

  /** Moves the clock to shortly before the end of the delay, when the message still waits, and then past the end. */
  async function passTheDelay(queue, delayMs) {
    const { clock } = context.broker;
    await clock.advance(delayMs - MARGIN_MS);
    assert.ok(await isDelayed(queue));
    await clock.advance(MARGIN_MS);
    await until(async () => !(await isDelayed(queue)), "the end of the delay");
  }

  test("the queue's policy sets the delay", async () => {
    const { client, queue, receiver } = await given({ retry: "linear:40s..500s" });
    await send(client, queue, "failing");
    let message = await receiveOne(receiver);
    for (const [index, delayMs] of [40_000, 80_000].entries()) {
      await receiver.abandonMessage(message);
      await passTheDelay(queue, delayMs);
      message = await receiveOne(receiver);
      assert.equal(message.deliveryCount, index + 1);
    }
  });

  for (const reserved of [{ "peeklock-retry-after-ms": 90_500 }, { "peeklock-retry-after": 90.5 }, { "peeklock-retry-after": "PT90.5S" }]) {
    test(`abandoning with ${JSON.stringify(reserved)} delays the message`, async () => {
      const { client, queue, receiver } = await given();
      await client.createSender(queue).sendMessages({ body: "busy", messageId: "kept" });
      await receiver.abandonMessage(await receiveOne(receiver), { ...reserved, why: "busy" });
      await passTheDelay(queue, 90_500);
      const again = await receiveOne(receiver);
      assert.deepEqual([again.messageId, again.deliveryCount], ["kept", 1]);
      assert.deepEqual(again.applicationProperties, { why: "busy" });
      await receiver.completeMessage(again);
      await assertEmpty(client, queue);
    });
  }

  test("a deferred message is abandoned without delay and stays deferred", async () => {
    const { client, queue, receiver } = await given();
    await send(client, queue, "aside");
    const message = await receiveOne(receiver);
    await receiver.deferMessage(message, { note: "later" });
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.applicationProperties.note, "later");
    await receiver.abandonMessage(deferred, { note: "again" });
    const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(again.applicationProperties.note, "again");
  });
});

describe("limits", () => {
  test("a queue's status is enforced", async () => {
    const { client, queue, sender, receiver } = await given();
    await sender.sendMessages({ body: "before" });
    const disabled = { code: "MessagingEntityDisabled" };
    await updateQueue(context.broker, queue, { status: "send-disabled" });
    await assert.rejects(sender.sendMessages({ body: "refused" }), disabled);
    assert.equal((await receiveOne(receiver)).body, "before");
    await updateQueue(context.broker, queue, { status: "receive-disabled" });
    await sender.sendMessages({ body: "kept" });
    await assert.rejects(client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 20_000 }), disabled);
    await updateQueue(context.broker, queue, { status: "active" });
    assert.equal((await receiveOne(client.createReceiver(queue))).body, "kept");
  });

  test("a full queue rejects sends until there is room", async () => {
    const { sender, receiver } = await given({ maxSize: 3000 });
    await sender.sendMessages({ body: "x".repeat(2000) });
    await assert.rejects(sender.sendMessages({ body: "y".repeat(2000) }), { code: "QuotaExceeded" });
    await receiver.completeMessage(await receiveOne(receiver));
    await sender.sendMessages({ body: "z".repeat(2000) });
  });

  test("a message above the queue's limit is rejected", async () => {
    const { client, queue, sender } = await given({ maxMessageSize: 100_000 });
    await assert.rejects(sender.sendMessages({ body: "x".repeat(110_000) }), { code: "MessageSizeExceeded" });
    await assertEmpty(client, queue);
  });
});
