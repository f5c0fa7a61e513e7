// Forwarding, requests with replies, and purging.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { deleteQueue, showQueue } from "../api.mjs";
import { ask } from "../management.mjs";
import {
  TRANSFER_DEAD_LETTER,
  assertEmpty,
  bodies,
  receive,
  receiveDeadLetter,
  receiveOne,
  send,
  sendInSession,
  useBroker,
} from "../steps.mjs";

const context = useBroker();

async function forwarding(targetSettings = {}) {
  const { client, create } = context;
  const target = await create(targetSettings);
  return { client, target, source: await create({ forwardTo: target }) };
}

describe("forwarding", () => {
  test("forwarded messages keep their properties and order", async () => {
    const { client, source, target } = await forwarding();
    const sender = client.createSender(source);
    await sender.sendMessages([{ body: "first", messageId: "m", subject: "s", applicationProperties: { own: 7 } }, { body: "second" }]);
    const [first, second] = await receive(client.createReceiver(target), 2);
    assert.deepEqual([first.body, first.messageId, first.subject], ["first", "m", "s"]);
    assert.deepEqual(first.applicationProperties, { own: 7 });
    assert.deepEqual([first, second].map((message) => Number(message.enqueuedSequenceNumber)), [1, 2]);
  });

  test("a queue that forwards rejects receivers", async () => {
    const { client, source } = await forwarding();
    await assert.rejects(client.createReceiver(source).receiveMessages(1, { maxWaitTimeInMs: 20_000 }), /forwards its messages/);
  });

  test("dead letters are forwarded with reason and source", async () => {
    const { client, create } = context;
    const graveyard = await create();
    const source = await create({ forwardDeadLettersTo: graveyard });
    await send(client, source, "poison");
    const receiver = client.createReceiver(source);
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "why", deadLetterErrorDescription: "more" });
    const dead = await receiveOne(client.createReceiver(graveyard));
    assert.deepEqual([dead.body, dead.deadLetterReason, dead.deadLetterErrorDescription], ["poison", "why", "more"]);
    assert.equal(dead.deadLetterSource, source);
  });

  test("a message for a deleted queue is dead-lettered", async () => {
    const { client, source, target } = await forwarding();
    await deleteQueue(context.broker, target);
    await send(client, source, "homeless");
    const dead = await receiveDeadLetter(client, source, TRANSFER_DEAD_LETTER);
    assert.equal(dead.body, "homeless");
    assert.ok(dead.deadLetterReason);
    assert.match(dead.deadLetterErrorDescription, new RegExp(target));
  });

  test("a message for a full queue is dead-lettered", async () => {
    const { client, source, target } = await forwarding({ maxSize: 2000 });
    await send(client, source, "x".repeat(1500));
    await send(client, source, "y".repeat(1500));
    const dead = await receiveDeadLetter(client, source, TRANSFER_DEAD_LETTER);
    assert.equal(dead.body[0], "y");
    assert.equal((await receiveOne(client.createReceiver(target))).body[0], "x");
  });

  test("after four hops a message is dead-lettered", async () => {
    const { client, create } = context;
    const queues = [await create()];
    for (let hop = 0; hop < 5; hop++) queues.unshift(await create({ forwardTo: queues[0] }));
    await send(client, queues[0], "too far");
    const dead = await receiveDeadLetter(client, queues[4]);
    assert.equal(dead.deadLetterReason, "MaxTransferHopCountExceeded");
    await assertEmpty(client, queues[5]);
  });
});

describe("request and reply", () => {
  test("each requester gets its own reply from a queue with sessions", async () => {
    const { client, create } = context;
    const requests = await create();
    const replies = await create({ requiresSession: true });
    const server = client.createReceiver(requests).subscribe({
      processMessage: async (question) => {
        const sender = client.createSender(question.replyTo);
        const answer = { body: question.body.toUpperCase(), correlationId: question.messageId, sessionId: question.replyToSessionId };
        await sender.sendMessages(answer);
        await sender.close();
      },
      processError: async () => {},
    });
    const request = async (name) => {
      const receiver = await client.acceptSession(replies, name);
      const question = { body: `question of ${name}`, messageId: `id-${name}`, replyTo: replies, replyToSessionId: name };
      await client.createSender(requests).sendMessages(question);
      const answer = await receiveOne(receiver);
      await receiver.completeMessage(answer);
      assert.deepEqual([answer.body, answer.correlationId], [`QUESTION OF ${name.toUpperCase()}`, `id-${name}`]);
    };
    await Promise.all(["one", "two", "three"].map(request));
    await server.close();
    await assertEmpty(client, requests);
  });
});

describe("purging", () => {
  test("messages are deleted in batches and purged", async () => {
    const { broker, client, create } = context;
    const queue = await create();
    await send(client, queue, ..."abcdef");
    const before = new Date(Date.now() + 1000);
    const deleted = await ask(broker, "com.microsoft:batch-delete-messages", { "message-count": 2, "enqueued-time-utc": before }, queue);
    assert.deepEqual(deleted, { "message-count": 2 });
    assert.deepEqual(bodies(await client.createReceiver(queue).peekMessages(10)), [..."cdef"]);
    assert.equal(Number((await ask(broker, "peeklock:purge", {}, queue))["message-count"]), 4);
    await assertEmpty(client, queue);
  });

  test("sessions are listed", async () => {
    const { broker, client, create } = context;
    const queue = await create({ requiresSession: true });
    for (const session of ["a", "b"]) await sendInSession(client, queue, session, "work");
    const everything = { "last-updated-time": new Date(253_402_300_800_000), skip: 0, top: 100 };
    const listed = await ask(broker, "com.microsoft:get-message-sessions", everything, queue);
    assert.deepEqual([...listed["sessions-ids"]].sort(), ["a", "b"]);
    const shown = await showQueue(broker, queue);
    assert.equal(shown.requiresSession, true);
    assert.equal(Number(shown.activeCount), 2);
  });
});
