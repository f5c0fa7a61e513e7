// Calls of the broker's JSON API, as from a script.
import { createHmac } from "node:crypto";
import { KEY, KEY_NAME } from "./broker.mjs";

function signature(resource, keyName, key, expiry) {
  const place = encodeURIComponent(resource);
  const proof = createHmac("sha256", key).update(`${place}\n${expiry}`).digest("base64");
  return `SharedAccessSignature sr=${place}&sig=${encodeURIComponent(proof)}&se=${expiry}&skn=${keyName}`;
}

/**
 * Requests a path of names, each of which may contain any character. Returns the body of the answer, if there is one.
 */
export async function call(broker, method, path, body) {
  const root = `http://${broker.address}`;
  const authorization = signature(root, KEY_NAME, KEY, Math.floor(Date.now() / 1000) + 600);
  const headers = { authorization, "content-type": "application/json" };
  const place = path.map(encodeURIComponent).join("/");
  const response = await fetch(`${root}/api/${place}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${place}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

let madeCount = 0;

/** Creates a queue and returns its name. */
export async function createQueue(broker, settings = {}) {
  const name = `made-${madeCount++}`;
  await call(broker, "PUT", ["queues", name], settings);
  return name;
}

export function updateQueue(broker, name, settings) {
  return call(broker, "PUT", ["queues", name], settings);
}

export function deleteQueue(broker, name) {
  return call(broker, "DELETE", ["queues", name]);
}

export function showQueue(broker, name) {
  return call(broker, "GET", ["queues", name]);
}
