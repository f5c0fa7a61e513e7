// Messages for later, messages with an end, and messages that came before.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { call, updateQueue } from "../api.mjs";
import { DEAD_LETTER, assertEmpty, bodies, inMs, receive, receiveDeadLetter, receiveOne, send, sleep, useBroker } from "../steps.mjs";

const context = useBroker();
const FAR_MS = 3_600_000;
// Far enough to look at a message before it is due.
const SOON_MS = 6000;

async function given(settings) {
  const { client, create } = context;
  const queue = await create(settings);
  return { client, queue, sender: client.createSender(queue), receiver: client.createReceiver(queue) };
}

describe("scheduling", () => {
  test("a scheduled message comes when it is due", async () => {
    const { sender, receiver } = await given();
    const due = inMs(SOON_MS);
    const [number] = await sender.scheduleMessages({ body: "later" }, due);
    const [peeked] = await receiver.peekMessages(1);
    assert.equal(peeked.state, "scheduled");
    assert.equal(peeked.sequenceNumber.toString(), number.toString());
    assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), due.getTime());
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
    const message = await receiveOne(receiver);
    assert.ok(Date.now() >= due);
    assert.deepEqual([message.body, message.deliveryCount, message.state], ["later", 0, "scheduled"]);
  });

  test("many are scheduled at once and come in order", async () => {
    const { sender, receiver } = await given();
    const sent = [...Array(10).keys()];
    const numbers = await sender.scheduleMessages(sent.map((body) => ({ body })), inMs(500));
    assert.equal(new Set(numbers.map(String)).size, 10);
    assert.deepEqual(bodies(await receive(receiver, 10)), sent);
  });

  test("one and many can be cancelled, what is not scheduled cannot", async () => {
    const { client, queue, sender } = await given();
    const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], inMs(FAR_MS));
    const [one] = await sender.scheduleMessages({ body: "c" }, inMs(FAR_MS));
    await sender.cancelScheduledMessages(numbers);
    await sender.cancelScheduledMessages(one);
    await assertEmpty(client, queue);
    await assert.rejects(sender.cancelScheduledMessages(one), { code: "MessageNotFound" });
  });

  test("the property schedules too, and the past is now", async () => {
    const { sender, receiver } = await given();
    await sender.sendMessages([
      { body: "later", scheduledEnqueueTimeUtc: inMs(SOON_MS) },
      { body: "past", scheduledEnqueueTimeUtc: inMs(-FAR_MS) },
    ]);
    await sender.scheduleMessages({ body: "past, too" }, inMs(-FAR_MS));
    assert.deepEqual(bodies(await receive(receiver, 3)), ["past", "past, too", "later"]);
  });
});

describe("time to live", () => {
  test("an expired message is dropped", async () => {
    const { client, queue, sender, receiver } = await given();
    await sender.sendMessages([{ body: "short", timeToLive: 300 }, { body: "long" }]);
    await sleep(500);
    assert.equal((await receiveOne(receiver)).body, "long");
    await assertEmpty(client, queue, DEAD_LETTER);
  });

  test("or dead-lettered where the queue says so", async () => {
    const { client, queue, sender } = await given({ deadLetterOnExpiration: true });
    await sender.sendMessages({ body: "late", timeToLive: 300, messageId: "m" });
    const dead = await receiveDeadLetter(client, queue);
    assert.deepEqual([dead.body, dead.messageId, dead.deadLetterReason], ["late", "m", "TTLExpiredException"]);
    await assertEmpty(client, queue);
  });

  test("the queue's own time is a default and a limit", async () => {
    const { sender, receiver } = await given({ defaultTimeToLive: "60000ms" });
    await sender.sendMessages([{ body: "none" }, { body: "more", timeToLive: FAR_MS }, { body: "less", timeToLive: 30_000 }]);
    const messages = await receive(receiver, 3);
    for (const [index, expected] of [60_000, 60_000, 30_000].entries()) {
      const { timeToLive, expiresAtUtc, enqueuedTimeUtc } = messages[index];
      // The SDK counts from the sender's clock to the broker's, so the way between them is in it.
      assert.ok(Math.abs(timeToLive - expected) < 20_000, `${timeToLive} ms for ${expected} ms`);
      assert.equal(expiresAtUtc - enqueuedTimeUtc, expected);
    }
  });
});

describe("duplicates", () => {
  test("a repeated id is accepted and dropped until the window has passed", async () => {
    const { sender, receiver } = await given({ duplicateWindow: "5s" });
    await sender.sendMessages({ body: "first", messageId: "same" });
    await sender.sendMessages([{ body: "again", messageId: "same" }, { body: "other", messageId: "other" }]);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["first", "other"]);
    await sleep(5300);
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
  /**
   * Abandons, waits until the message is no longer held back, and says between how many seconds it was. A pause of this process only
   * widens the span: the message was still held back when its last look began, and no more when the next ended.
   */
  async function abandonAndTime(queue, receiver, message, properties) {
    const started = Date.now();
    await receiver.abandonMessage(message, properties);
    const abandoned = Date.now();
    let [held, look] = [abandoned, abandoned];
    while (await isDelayed(queue)) {
      assert.ok(look - started < 30_000, "the message is held back for ever");
      await sleep(20);
      [held, look] = [look, Date.now()];
    }
    return [(held - abandoned) / 1000, (Date.now() - started) / 1000];
  }

  async function isDelayed(queue) {
    const [shown] = (await call(context.broker, "GET", ["queues", queue, "messages"])).items;
    return shown.state === "delayed";
  }

  function assertDelay([atLeast, atMost], delay) {
    assert.ok(atLeast < delay + 0.5 && atMost > delay - 0.05, `held back for ${atLeast} to ${atMost} s instead of ${delay} s`);
  }

  test("the queue's policy sets the delay", async () => {
    const { client, queue, receiver } = await given({ retry: "linear:400ms..5s" });
    await send(client, queue, "failing");
    let message = await receiveOne(receiver);
    for (const [index, delay] of [0.4, 0.8].entries()) {
      assertDelay(await abandonAndTime(queue, receiver, message), delay);
      message = await receiveOne(receiver);
      assert.equal(message.deliveryCount, index + 1);
    }
  });

  for (const reserved of [{ "peeklock-retry-after-ms": 800 }, { "peeklock-retry-after": 0.8 }, { "peeklock-retry-after": "PT0.8S" }]) {
    test(`abandoning with ${JSON.stringify(reserved)} delays`, async () => {
      const { client, queue, receiver } = await given();
      await client.createSender(queue).sendMessages({ body: "busy", messageId: "kept" });
      const message = await receiveOne(receiver);
      assertDelay(await abandonAndTime(queue, receiver, message, { ...reserved, why: "busy" }), 0.8);
      const again = await receiveOne(receiver);
      assert.deepEqual([again.messageId, again.deliveryCount], ["kept", 1]);
      assert.deepEqual(again.applicationProperties, { why: "busy" });
      await receiver.completeMessage(again);
      await assertEmpty(client, queue);
    });
  }

  test("a deferred message is abandoned without delay to where it was", async () => {
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
  test("a queue's status is obeyed", async () => {
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

  test("a full queue refuses until there is room", async () => {
    const { sender, receiver } = await given({ maxSize: 3000 });
    await sender.sendMessages({ body: "x".repeat(2000) });
    await assert.rejects(sender.sendMessages({ body: "y".repeat(2000) }), { code: "QuotaExceeded" });
    await receiver.completeMessage(await receiveOne(receiver));
    await sender.sendMessages({ body: "z".repeat(2000) });
  });

  test("a message above the queue's own limit is refused", async () => {
    const { client, queue, sender } = await given({ maxMessageSize: 100_000 });
    await assert.rejects(sender.sendMessages({ body: "x".repeat(110_000) }), { code: "MessageSizeExceeded" });
    await assertEmpty(client, queue);
  });
});
