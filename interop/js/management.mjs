// Requests to the broker's management addresses with a plain AMQP 1.0 client.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import rhea from "rhea";
import { KEY, KEY_NAME } from "./broker.mjs";

/** Runs `action` with a connection that is closed afterwards. */
export async function connected(broker, action, options = {}) {
  const connection = connect(broker, options);
  try {
    await once(connection, "connection_open");
    return await action(connection);
  } finally {
    connection.close();
    await once(connection, "connection_close");
  }
}

export function connect(broker, options = {}) {
  const place = { host: "127.0.0.1", port: broker.port, username: KEY_NAME, password: KEY, reconnect: false };
  return rhea.create_container().connect({ ...place, ...options });
}

/** Sends a request to the namespace, or to the entity that `of` names. Returns the body of the answer. */
export function ask(broker, operation, body, of) {
  return connected(broker, async (connection) => {
    const address = of ? `${of}/$management` : "$management";
    const name = randomUUID();
    const receiver = connection.open_receiver({ name, source: address });
    const answered = once(receiver, "message");
    const sender = connection.open_sender({ target: address });
    await once(sender, "sendable");
    sender.send({ message_id: name, reply_to: name, application_properties: { operation }, body });
    const [{ message }] = await answered;
    const { statusCode, statusDescription } = message.application_properties;
    if (statusCode < 200 || statusCode >= 300) throw new Error(`${operation}: ${statusCode} ${statusDescription}`);
    return message.body;
  });
}
