// Checks a run by the logs of its parties alone. It relies only on the guarantees of the broker:
//
// * a confirmed message is completed by some receiver, or still in the queue;
// * a message whose completion was confirmed is never delivered again;
// * a message has at most one holder at a time;
// * no message is changed, invented or stored twice.

/**
 * The tolerance between times of different processes, which read one clock at different instants. A real double lock
 * lasts far longer.
 */
const TOLERANCE_MS = 20;

export function check(steps, { lockMs }) {
  const run = index(steps);
  const violations = [
    ...findLost(run, lockMs),
    ...findComebacks(run, lockMs),
    ...findHeldTwice(run, lockMs),
    ...findStoredTwice(run),
    ...findStrange(run, lockMs),
  ];
  return { summary: summarise(run, violations), violations };
}

/** Groups the steps by message and delivery. The lock token identifies a delivery. */
function index(steps) {
  const run = { sends: new Map(), deliveries: new Map(), byId: new Map(), found: new Set(), kills: [], trouble: [], confirmedCount: 0 };
  for (const step of steps) {
    if (step.step === "kill") run.kills.push(step.at);
    else if (step.step === "found") run.found.add(step.id);
    else if (step.step === "trouble") run.trouble.push(step);
    else if (step.step === "intent") run.sends.set(step.id, { at: step.at });
    else if (step.step === "received") addDelivery(run, step);
    else if (step.token !== undefined) addSettlement(run, step);
    else addAnswer(run, step);
  }
  for (const send of run.sends.values()) if (send.confirmedAt) run.confirmedCount += 1;
  return run;
}

function addDelivery(run, { party, at, id, token, sequence, until, count, intact }) {
  const delivery = { party, at, id, token, sequence, until, count: count ?? 0, intact };
  run.deliveries.set(token, delivery);
  if (!run.byId.has(id)) run.byId.set(id, []);
  run.byId.get(id).push(delivery);
}

function addSettlement(run, { at, step, token }) {
  const delivery = run.deliveries.get(token);
  if (step === "complete" || step === "abandon") {
    delivery.settledAt = at;
    delivery.completing = step === "complete";
  } else if (step === "completed") delivery.completedAt = at;
  else if (step === "refused") delivery.refused = true;
}

function addAnswer(run, { at, step, id }) {
  if (step === "confirmed") run.sends.get(id).confirmedAt = at;
}

/** Finds lost messages: confirmed ones that their last holder did not complete and that are not in the queue either. */
function* findLost(run, lockMs) {
  for (const [id, send] of run.sends) {
    if (!send.confirmedAt || run.found.has(id)) continue;
    const last = inOrderOfLock(run.byId.get(id) ?? [], lockMs).at(-1);
    // A completion without an answer may be durable: the broker was killed before it could answer.
    if (!last?.completing || last.refused) yield { kind: "lost", id, last };
  }
}

/**
 * Returns the time at which the broker locked a message. The receipt can be later, by as long as the receiver was busy,
 * but never earlier.
 */
function lockedAt(delivery, lockMs) {
  return Math.min(delivery.at, delivery.until - lockMs);
}

/**
 * Sorts deliveries by the time of their lock. A message can be returned and locked again within a millisecond; the
 * delivery count then determines which lock was first.
 */
function inOrderOfLock(deliveries, lockMs) {
  return deliveries.toSorted((a, b) => lockedAt(a, lockMs) - lockedAt(b, lockMs) || a.count - b.count);
}

function* findComebacks(run, lockMs) {
  for (const [id, deliveries] of run.byId) {
    const completedAt = Math.min(...deliveries.map((delivery) => delivery.completedAt ?? Infinity));
    for (const delivery of deliveries) {
      if (lockedAt(delivery, lockMs) > completedAt + TOLERANCE_MS) yield { kind: "came back", id, completedAt, delivery };
    }
    if (completedAt < Infinity && run.found.has(id)) yield { kind: "came back", id, completedAt };
  }
}

function* findHeldTwice(run, lockMs) {
  for (const [id, deliveries] of run.byId) {
    const inOrder = inOrderOfLock(deliveries, lockMs);
    for (let later = 1; later < inOrder.length; later++) {
      const start = lockedAt(inOrder[later], lockMs);
      const holder = inOrder.slice(0, later).find((earlier) => start < endOfHold(earlier) - TOLERANCE_MS);
      if (holder) yield { kind: "held twice", id, holder, delivery: inOrder[later] };
    }
  }
}

/**
 * Returns the end of a hold: the end of the lock, or the settlement. A kill does not end it, because a lock is durable
 * before it is visible.
 */
function endOfHold(delivery) {
  return Math.min(delivery.until, delivery.settledAt ?? Infinity);
}

function* findStoredTwice(run) {
  const owners = new Map();
  for (const [id, deliveries] of run.byId) {
    const sequences = new Set(deliveries.map((delivery) => delivery.sequence));
    if (sequences.size > 1) yield { kind: "stored twice", id, sequences: [...sequences] };
    for (const sequence of sequences) {
      if (owners.has(sequence)) yield { kind: "sequence number used twice", id, other: owners.get(sequence), sequence };
      owners.set(sequence, id);
    }
  }
}

function* findStrange(run, lockMs) {
  for (const delivery of run.deliveries.values()) {
    if (!run.sends.has(delivery.id)) yield { kind: "invented", delivery };
    if (!delivery.intact) yield { kind: "changed", delivery };
    if (!isLockTime(delivery, lockMs)) yield { kind: "wrong lock time", delivery };
  }
  for (const trouble of run.trouble) yield { kind: "protocol", trouble };
}

/** Returns whether a lock has an end and is not too long. It may appear short if its receiver was busy, never long. */
function isLockTime({ at, until }, lockMs) {
  return Number.isFinite(until) && until - lockMs <= at + TOLERANCE_MS;
}

function summarise(run, violations) {
  const deliveries = [...run.deliveries.values()];
  const redelivered = [...run.byId.values()].reduce((sum, list) => sum + list.length - 1, 0);
  return {
    kills: run.kills.length,
    sent: run.sends.size,
    confirmed: run.confirmedCount,
    delivered: deliveries.length,
    completed: deliveries.filter((delivery) => delivery.completedAt).length,
    redelivered,
    left: run.found.size,
    violations: violations.length,
  };
}

export function line(summary) {
  return Object.entries(summary).map(([name, count]) => `${name} ${count}`).join(", ");
}
