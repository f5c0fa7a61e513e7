// Messages of many megabytes, with the SDK and with a plain AMQP client.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import rhea from "rhea";
import { connected as onConnection } from "../management.mjs";
import { receiveOne, until, useBroker } from "../steps.mjs";

const MB = 1000 * 1000;
const context = useBroker({ queues: ["big,max-message-size=100MiB", "plain,max-message-size=30000000"] });

test("the SDK sends and receives twenty megabytes", async () => {
  const body = randomBytes(20 * MB);
  await context.client.createSender("big").sendMessages({ body, subject: "much" });
  const receiver = context.client.createReceiver("big");
  const message = await receiveOne(receiver, 60_000);
  assert.equal(message.subject, "much");
  assert.ok(body.equals(message.body));
  await receiver.completeMessage(message);
});

test("a plain client receives the bytes that it sent, and a message over the limit affects nothing else", () =>
  onConnection(context.broker, async (connection) => {
    const sender = connection.open_sender({ target: "plain" });
    if (!sender.sendable()) await once(sender, "sendable");
    assert.equal(Number(sender.max_message_size), 30 * MB);
    const outcome = async (body) => {
      const delivery = sender.send({ body: rhea.message.data_section(body), message_id: String(body.length) });
      await once(sender, "settled");
      return String(delivery.remote_state?.error?.condition ?? "accepted");
    };
    assert.equal(await outcome(randomBytes(31 * MB)), "amqp:link:message-size-exceeded");
    const sent = [randomBytes(10), randomBytes(20 * MB), randomBytes(10)];
    for (const body of sent) assert.equal(await outcome(body), "accepted");
    const found = [];
    connection.open_receiver({ source: "plain", credit_window: 10 }).on("message", ({ message }) => found.push(message));
    await until(() => found.length === sent.length, "three messages", 60_000);
    sent.forEach((body, at) => assert.ok(body.equals(found[at].body.content)));
  }));
