// Checks the events of the hub by the logs of its parties alone. It relies only on the guarantees of the broker:
//
// * a confirmed event is stored once, at one sequence number, unchanged, with its whole batch;
// * sequence numbers have no gap and are never reused, and an event that was read is never removed;
// * events are stored in the order in which they were sent;
// * a reader that continues after an event gets the next one, and misses none;
// * the store returns a confirmed checkpoint, or a later one.

export function checkHub(steps) {
  const run = index(steps);
  const violations = [
    ...findLost(run),
    ...findStoredTwice(run),
    ...findGaps(run),
    ...findTakenBack(run),
    ...findMissed(run),
    ...findTornBatches(run),
    ...findDisorder(run),
    ...findStrange(run),
    ...findCheckpointsBack(run),
  ];
  return { summary: summarise(run, violations), violations };
}

/** Groups the steps by subject. The last pass over each partition is the replayer's. */
function index(steps) {
  const run = { sends: new Map(), byId: new Map(), readings: new Map(), places: new Map(), ends: new Map(), notes: [], found: [] };
  for (const step of steps) {
    if (step.step === "publish") addSend(run, step);
    else if (step.step === "published") run.sends.get(step.send).confirmedAt = step.at;
    else if (step.step === "unpublished") run.sends.get(step.send).refused = true;
    else if (step.step === "reading") run.readings.set(step.reading, { ...step, events: [] });
    else if (step.step === "event") addEvent(run, step);
    else if (step.step === "replayed") run.ends.set(step.partition, step);
    else if (step.step === "checkpoint") run.notes.push({ ...step });
    else if (step.step === "checkpointed") noteOf(run, step).confirmedAt = step.at;
    else if (step.step === "checkpoint found") run.found.push(step);
  }
  return run;
}

function addSend(run, { at, party, send, partition, ids }) {
  run.sends.set(send, { send, at, party, partition, ids });
  ids.forEach((id, place) => run.byId.set(id, { send, place, events: [] }));
}

function addEvent(run, step) {
  run.readings.get(step.reading).events.push(step);
  run.byId.get(step.id)?.events.push(step);
  const place = placeOf(step);
  if (!run.places.has(place)) run.places.set(place, []);
  run.places.get(place).push(step);
}

const placeOf = ({ partition, sequence }) => `${partition}/${sequence}`;
const noteOf = (run, { party, partition, sequence }) =>
  run.notes.findLast((note) => note.party === party && note.partition === partition && note.sequence === sequence);
const isReplay = (run, { party, partition }) => run.ends.get(partition)?.party === party;

/** Returns the events of the last pass over a partition, in order. */
function replayed(run, partition) {
  return [...run.readings.values()].filter((reading) => reading.partition === partition && isReplay(run, reading)).flatMap((reading) => reading.events);
}

function* findLost(run) {
  for (const { partition, confirmedAt, ids, send } of run.sends.values()) {
    if (!confirmedAt) continue;
    // Events of a partition that was not replayed cannot be checked.
    if (!run.ends.has(partition)) yield { kind: "not replayed", partition };
    for (const id of ids) {
      if (!run.byId.get(id).events.some((event) => isReplay(run, event))) yield { kind: "event lost", id, send };
    }
  }
}

/** Finds ids at two places, and places with two ids, over all passes of all readers, before and after every kill. */
function* findStoredTwice(run) {
  for (const [id, { events }] of run.byId) {
    const places = new Set(events.map(placeOf));
    if (places.size > 1) yield { kind: "event stored twice", id, places: [...places] };
  }
  for (const [place, events] of run.places) {
    const [first] = events;
    const other = events.find(({ id, offset, enqueued }) => id !== first.id || offset !== first.offset || enqueued !== first.enqueued);
    if (other) yield { kind: "sequence number used again", place, first, other };
  }
}

/** Checks each pass: it starts where it was requested, and each event follows the one before. */
function* findGaps(run) {
  for (const { reading, after, events } of run.readings.values()) {
    let expected = (after ?? -1) + 1;
    for (const { sequence } of events) {
      if (sequence !== expected) yield { kind: sequence > expected ? "gap" : "repeat", reading, expected, sequence };
      expected = sequence + 1;
    }
  }
}

function* findTakenBack(run) {
  for (const [place, events] of run.places) {
    const { partition } = events[0];
    if (run.ends.has(partition) && !events.some((event) => isReplay(run, event))) yield { kind: "taken back", place, event: events[0] };
  }
}

/** Checks that every party that reads to the end has received every event, over all its passes. */
function* findMissed(run) {
  const seen = new Map();
  for (const { party, partition, events } of run.readings.values()) {
    const of = `${party}/${partition}`;
    if (!seen.has(of)) seen.set(of, { party, partition, places: new Set() });
    events.forEach((event) => seen.get(of).places.add(placeOf(event)));
  }
  for (const { party, partition, places } of seen.values()) {
    const missed = replayed(run, partition).filter((event) => !places.has(placeOf(event)));
    if (missed.length > 0) yield { kind: "missed", party, partition, count: missed.length, first: missed[0] };
  }
}

/** Checks that all events of a publication are stored consecutively, or none. */
function* findTornBatches(run) {
  for (const { send, ids, partition } of run.sends.values()) {
    if (!run.ends.has(partition)) continue;
    const sequences = ids.map((id) => run.byId.get(id).events.find((event) => isReplay(run, event))?.sequence);
    const first = sequences[0];
    const isWhole = sequences.every((sequence, place) => sequence === (first === undefined ? undefined : first + place));
    if (!isWhole) yield { kind: "batch torn", send, sequences };
  }
}

/**
 * Checks that a publisher's events are stored in the order of its sends, that none precedes an event that was confirmed
 * when it was sent, and that times never decrease.
 */
function* findDisorder(run) {
  for (const partition of run.ends.keys()) {
    const [latest, highest] = [new Map(), { sentAt: -Infinity }];
    let enqueuedMax = -Infinity;
    for (const event of replayed(run, partition)) {
      if (event.enqueued < enqueuedMax) yield { kind: "times fall", event };
      enqueuedMax = Math.max(enqueuedMax, event.enqueued);
      const known = run.byId.get(event.id);
      if (!known) continue;
      const send = run.sends.get(known.send);
      const number = numberOf(event.id);
      if (number < (latest.get(send.party) ?? -1)) yield { kind: "out of order", event };
      latest.set(send.party, number);
      if (send.confirmedAt < highest.sentAt) yield { kind: "out of order", event, behind: highest.id };
      if (send.at > highest.sentAt) Object.assign(highest, { sentAt: send.at, id: event.id });
    }
  }
}

const numberOf = (id) => Number(id.slice(id.lastIndexOf("-") + 1));

function* findStrange(run) {
  for (const events of run.places.values()) {
    for (const event of events) {
      const send = run.sends.get(run.byId.get(event.id)?.send);
      if (!send) yield { kind: "event invented", event };
      else if (send.refused) yield { kind: "event refused and stored", event };
      else if (send.partition !== event.partition) yield { kind: "wrong partition", event };
      if (!event.intact) yield { kind: "event changed", event };
    }
  }
}

/** Checks that a checkpoint is not before one that was confirmed or found earlier, and that a party set it. */
function* findCheckpointsBack(run) {
  for (const look of run.found) {
    const isHere = (other) => other.party === look.party && other.partition === look.partition;
    const sequence = look.sequence ?? -1;
    const confirmed = run.notes.filter((note) => isHere(note) && note.confirmedAt < look.asked);
    const before = run.found.filter((other) => isHere(other) && other.at < look.asked);
    const floor = Math.max(-1, ...confirmed.map((note) => note.sequence), ...before.map((other) => other.sequence ?? -1));
    if (sequence < floor) yield { kind: "checkpoint went back", look, floor };
    const isKnown = sequence === -1 || run.notes.some((note) => isHere(note) && note.sequence === sequence && note.at <= look.at);
    if (!isKnown) yield { kind: "checkpoint invented", look };
  }
}

function summarise(run, violations) {
  const sends = [...run.sends.values()];
  const readings = [...run.readings.values()];
  const eventCount = (list) => list.reduce((sum, { ids }) => sum + ids.length, 0);
  return {
    published: eventCount(sends),
    confirmed: eventCount(sends.filter((send) => send.confirmedAt)),
    stored: [...run.ends.values()].reduce((sum, { next }) => sum + next, 0),
    resumed: readings.filter(({ after, events }) => after !== null && events.length > 0).length,
    checkpoints: run.notes.filter((note) => note.confirmedAt).length,
    found: run.found.filter(({ sequence }) => sequence !== null).length,
    violations: violations.length,
  };
}
