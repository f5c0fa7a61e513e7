// A small seeded generator (mulberry32): the same seed gives the same kills.
export class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  /** Returns a number in [0, 1). */
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  between(min, max) {
    return min + this.next() * (max - min);
  }
}
