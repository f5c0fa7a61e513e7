/** A lock token as text: the 16 bytes of the delivery tag. The order of its bytes does not matter for telling them apart. */
export function tokenText(tag) {
  return Buffer.from(tag).toString("hex");
}
