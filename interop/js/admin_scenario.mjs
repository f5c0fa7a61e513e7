// Runs the administration client without any option, as in an unmodified program. Argument: connection string.
import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const [connectionString] = process.argv.slice(2);
const admin = new ServiceBusAdministrationClient(connectionString);
await admin.createTopic("stock");
await admin.createSubscription("stock", "one");
assert.equal(await admin.subscriptionExists("stock", "one"), true);
await admin.deleteTopic("stock");
console.log("every step passed");
