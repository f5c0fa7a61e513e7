// AMQP over WebSockets, for clients behind a firewall. The SDK supports them over TLS only.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";
import { KEY, KEY_NAME } from "../broker.mjs";
import { CLIENT_OPTIONS, assertEmpty, bodies, receive, receiveOne, send } from "../steps.mjs";
import { createTopic, fresh, publish, taken, useManagedBroker } from "../topics.mjs";

const context = useManagedBroker();
const clients = [];
after(() => Promise.all(clients.map((client) => client.close())));

function overWebSocket(address, { key = KEY, retryOptions, ...options } = {}) {
  const ca = readFileSync(context.broker.certificate, "utf8");
  const connectionString = `Endpoint=sb://${address}/;SharedAccessKeyName=${KEY_NAME};SharedAccessKey=${key}`;
  const webSocketOptions = { webSocket: WebSocket, webSocketConstructorOptions: { ca, ...options } };
  const client = new ServiceBusClient(connectionString, { ...CLIENT_OPTIONS, ...(retryOptions && { retryOptions }), webSocketOptions });
  clients.push(client);
  return client;
}

const PORTS = { TLS: "tlsAddress", HTTP: "httpAddress", AMQP: "address" };

for (const [name, port] of Object.entries(PORTS)) {
  describe(`on the port for ${name}`, () => {
    test("messages are sent, received, settled and managed", async () => {
      const client = overWebSocket(context.broker[port]);
      const queue = fresh("queue");
      await context.admin.createQueue(queue);
      await send(client, queue, "first", "second");
      const receiver = client.createReceiver(queue);
      assert.deepEqual(bodies(await receiver.peekMessages(2)), ["first", "second"]);
      const [first, second] = await receive(receiver, 2);
      await receiver.renewMessageLock(first);
      await receiver.completeMessage(first);
      await receiver.deferMessage(second);
      const [deferred] = await receiver.receiveDeferredMessages(second.sequenceNumber);
      await receiver.completeMessage(deferred);
      await assertEmpty(client, queue);
    });

    test("a large message to a topic arrives unchanged", async () => {
      const client = overWebSocket(context.broker[port]);
      const topic = await createTopic(context.admin, { one: {} });
      const large = "x".repeat(900 * 1024);
      await publish(client, topic, large);
      assert.deepEqual(await taken(client, topic, "one", 1), [large]);
    });
  });
}

test("a wrong key is rejected", async () => {
  const client = overWebSocket(context.broker.httpAddress, { key: "not the key", retryOptions: { maxRetries: 0 } });
  await assert.rejects(send(client, "any", "never"), { code: "UnauthorizedAccess" });
});

test("an untrusted certificate fails the connection", async () => {
  const client = overWebSocket(context.broker.httpAddress, { ca: undefined });
  await assert.rejects(receiveOne(client.createReceiver("any")));
});

for (const protocol of ["AMQPWSB10", "amqp"]) {
  for (const path of ["/$servicebus/websocket", "/$servicebus/websocket/"]) {
    test(`the path ${path} accepts the protocol ${protocol}`, async () => {
      const socket = new WebSocket(`ws://${context.broker.httpAddress}${path}`, [protocol]);
      await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
      assert.equal(socket.protocol, protocol);
      const answered = new Promise((resolve) => socket.once("message", resolve));
      socket.send(Buffer.from("AMQP\x03\x01\x00\x00", "latin1"));
      assert.equal((await answered).subarray(0, 4).toString(), "AMQP");
      socket.close();
    });
  }
}

test("a text frame is rejected", async () => {
  const socket = new WebSocket(`ws://${context.broker.httpAddress}/$servicebus/websocket`, ["AMQPWSB10"]);
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  const closed = new Promise((resolve) => socket.once("close", resolve).once("error", resolve));
  socket.send("hello");
  await closed;
});
