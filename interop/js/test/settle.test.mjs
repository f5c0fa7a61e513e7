// Settlements, deferred messages, the dead-letter queue, peeking.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { assertEmpty, bodies, receive, receiveOne, send, sendInSession, useBroker } from "../steps.mjs";

const context = useBroker();
const DEAD_LETTER = { subQueueType: "deadLetter" };

async function given(...sent) {
  const { client, pool } = context;
  const queue = pool.take();
  await send(client, queue, ...sent);
  return { client, queue, receiver: client.createReceiver(queue) };
}

describe("settling", () => {
  test("complete removes the message", async () => {
    const { client, queue, receiver } = await given("a", "b");
    for (const message of await receive(receiver, 2)) await receiver.completeMessage(message);
    await assertEmpty(client, queue);
  });

  test("many concurrent completes are all confirmed", async () => {
    const { client, queue, receiver } = await given(...Array(100).keys());
    const messages = await receive(receiver, 100);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    await assertEmpty(client, queue);
  });

  test("abandon returns the message to its place, counts, and changes properties", async () => {
    const { receiver } = await given("first", "second");
    const first = await receiveOne(receiver);
    await receiver.abandonMessage(first, { attempt: "one" });
    const again = await receiveOne(receiver);
    assert.equal(again.body, "first");
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.applicationProperties.attempt, "one");
    assert.notEqual(again.lockToken, first.lockToken);
    await receiver.completeMessage(again);
    assert.equal((await receiveOne(receiver)).body, "second");
  });

  test("dead-letter moves the message with reason, description and properties", async () => {
    const { client, queue, receiver } = await given("poison");
    await receiver.deadLetterMessage(await receiveOne(receiver), {
      deadLetterReason: "unreadable",
      deadLetterErrorDescription: "no schema fits",
      shift: "night",
    });
    await assertEmpty(client, queue);
    const dead = client.createReceiver(queue, DEAD_LETTER);
    const message = await receiveOne(dead);
    assert.equal(message.body, "poison");
    assert.equal(message.deadLetterReason, "unreadable");
    assert.equal(message.deadLetterErrorDescription, "no schema fits");
    assert.equal(message.applicationProperties.shift, "night");
    await dead.completeMessage(message);
    await dead.close();
    await assertEmpty(client, queue, DEAD_LETTER);
  });

  test("a dead letter cannot be dead-lettered again, and is not counted", async () => {
    const { client, queue, receiver } = await given("poison");
    await receiver.deadLetterMessage(await receiveOne(receiver));
    const dead = client.createReceiver(queue, DEAD_LETTER);
    await dead.abandonMessage(await receiveOne(dead));
    const message = await receiveOne(dead);
    assert.equal(message.deliveryCount, 0);
    await assert.rejects(dead.deadLetterMessage(message), /InvalidOperationError.*already/);
    assert.deepEqual(bodies(await dead.peekMessages(1)), ["poison"]);
    await dead.close();
  });

  test("too many deliveries dead-letter a message", async () => {
    const { client, pool } = context;
    const queue = pool.take("count3");
    await send(client, queue, "poison");
    const receiver = client.createReceiver(queue);
    for (let count = 0; count < 3; count++) {
      const message = await receiveOne(receiver);
      assert.equal(message.deliveryCount, count);
      await receiver.abandonMessage(message);
    }
    await assertEmpty(client, queue);
    const [dead] = await client.createReceiver(queue, DEAD_LETTER).peekMessages(1);
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  });
});

describe("deferring", () => {
  for (const settlement of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage"]) {
    test(`a deferred message is settled by its number: ${settlement}`, async () => {
      const { client, queue, receiver } = await given("later");
      const message = await receiveOne(receiver);
      await receiver.deferMessage(message);
      const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
      assert.deepEqual([deferred.body, deferred.deliveryCount], ["later", 1]);
      await receiver[settlement](deferred);
      if (settlement === "abandonMessage" || settlement === "deferMessage") {
        const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
        assert.equal(again.deliveryCount, 2);
        await receiver.completeMessage(again);
      }
      await assertEmpty(client, queue);
    });
  }

  test("a deferred message with a session id is settled on a queue without sessions", async () => {
    const { client, pool } = context;
    const queue = pool.take();
    await sendInSession(client, queue, "s", "later");
    const receiver = client.createReceiver(queue);
    const message = await receiveOne(receiver);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    await assertEmpty(client, queue);
  });

  test("a deferred message is not delivered, and peek shows its state", async () => {
    const { receiver } = await given("later");
    await receiver.deferMessage(await receiveOne(receiver));
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 }), []);
    const [peeked] = await receiver.peekMessages(1);
    assert.equal(peeked.state, "deferred");
  });

  test("a number that is not deferred is not found", async () => {
    const { receiver } = await given("active");
    const message = await receiveOne(receiver);
    await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber.add(1000)), { code: "MessageNotFound" });
  });
});

describe("peeking", () => {
  test("pages through a queue and changes nothing", async () => {
    const sent = [...Array(25).keys()];
    const { receiver } = await given(...sent);
    const got = [];
    for (let page; (page = await receiver.peekMessages(10)).length > 0; ) {
      assert.ok(page.length <= 10);
      got.push(...bodies(page));
    }
    assert.deepEqual(got, sent);
    assert.equal((await receiveOne(receiver)).deliveryCount, 0);
  });

  test("starts at a number", async () => {
    const { receiver } = await given("a", "b", "c");
    const [, second] = await receiver.peekMessages(3);
    const page = await receiver.peekMessages(10, { fromSequenceNumber: second.sequenceNumber });
    assert.deepEqual(bodies(page), ["b", "c"]);
  });
});
