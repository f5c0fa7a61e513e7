// A scenario over TLS. Node reads extra trusted certificates only when it starts, hence the separate process.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { KEY, KEY_NAME } from "../broker.mjs";
import { useBroker } from "../steps.mjs";

const context = useBroker({ listenTls: "127.0.0.1:0" });
const SCENARIO = fileURLToPath(new URL("../tls_scenario.mjs", import.meta.url));

function run(environment) {
  const { broker, pool } = context;
  const connectionString = `Endpoint=sb://${broker.tlsAddress}/;SharedAccessKeyName=${KEY_NAME};SharedAccessKey=${KEY}`;
  const { NODE_EXTRA_CA_CERTS, ...inherited } = process.env;
  return spawnSync(process.execPath, [SCENARIO, connectionString, pool.take()], {
    env: { ...inherited, NODE_TEST_CONTEXT: undefined, ...environment },
    encoding: "utf8",
    timeout: 60_000,
  });
}

test("messages are sent, received, settled and managed with a trusted certificate", () => {
  const result = run({ NODE_EXTRA_CA_CERTS: context.broker.certificate });
  assert.equal(result.status, 0, result.stdout + result.stderr);
  assert.match(result.stdout, /every step passed/);
});

test("an untrusted certificate fails the connection", () => {
  const result = run({});
  assert.notEqual(result.status, 0);
  assert.match(result.stderr, /self-signed|unable to verify|certificate/i);
});
