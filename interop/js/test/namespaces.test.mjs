// Several namespaces in one process, selected by host name or by the name of the key.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { Broker } from "../broker.mjs";
import { CLIENT_OPTIONS, bodies, receive, send } from "../steps.mjs";

const TOML = ["east", "west"]
  .map(
    (side) => `
[namespaces.${side}]
hosts = ["${side}.example.net"]
[namespaces.${side}.keys.root-of-${side}]
primary-key = "secret-of-${side}"
rights = ["Manage"]
[namespaces.${side}.queues.jobs]
`,
  )
  .join("");

const folder = mkdtempSync(join(tmpdir(), "peeklock-interop-"));
let broker;

before(async () => {
  const path = join(folder, "peeklock.toml");
  writeFileSync(path, TOML);
  broker = await Broker.start({ folder, configs: [path] });
});
after(async () => {
  await broker?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const WAYS = { "host name": (side) => `${side}.example.net`, "name of the key": () => "localhost" };

for (const [way, hostOf] of Object.entries(WAYS)) {
  test(`the ${way} selects the namespace`, async () => {
    const clients = ["east", "west"].map((side) => {
      const connectionString = broker.connectionStringOf(`root-of-${side}`, `secret-of-${side}`, hostOf(side));
      const customEndpointAddress = `sb://${broker.address}`;
      return new ServiceBusClient(connectionString, { ...CLIENT_OPTIONS, customEndpointAddress });
    });
    await send(clients[0], "jobs", "for east");
    await send(clients[1], "jobs", "for west");
    for (const [client, expected] of [[clients[0], "for east"], [clients[1], "for west"]]) {
      const receiver = client.createReceiver("jobs", { receiveMode: "receiveAndDelete" });
      assert.deepEqual(bodies(await receive(receiver, 1)), [expected]);
      assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
    }
    await Promise.all(clients.map((client) => client.close()));
  });
}
