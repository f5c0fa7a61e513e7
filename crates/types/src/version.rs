use std::fmt;

/// The version of the program. It is stored with commit groups and snapshots, so that an older program can report the
/// version that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramVersion(u32);

const MINOR_BITS: u32 = 12;
const PATCH_BITS: u32 = 12;

impl ProgramVersion {
    /// The version of this program.
    pub const THIS: ProgramVersion = ProgramVersion::new(
        parse(env!("CARGO_PKG_VERSION_MAJOR")),
        parse(env!("CARGO_PKG_VERSION_MINOR")),
        parse(env!("CARGO_PKG_VERSION_PATCH")),
    );

    /// Creates a version.
    ///
    /// # Panics
    /// If a part is too large: 255 for the major, 4,095 for the others.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        assert!(major < 1 << 8 && minor < 1 << MINOR_BITS && patch < 1 << PATCH_BITS);
        ProgramVersion((major << (MINOR_BITS + PATCH_BITS)) | (minor << PATCH_BITS) | patch)
    }

    pub const fn from_bits(bits: u32) -> Self {
        ProgramVersion(bits)
    }

    /// Returns an encoding in which later versions have larger values.
    pub const fn to_bits(self) -> u32 {
        self.0
    }
}

/// Parses digits. The standard parser is not const.
const fn parse(digits: &str) -> u32 {
    let (bytes, mut at, mut number) = (digits.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32, bits: u32| (self.0 >> shift) & ((1 << bits) - 1);
        write!(
            f,
            "{}.{}.{}",
            part(MINOR_BITS + PATCH_BITS, 8),
            part(PATCH_BITS, MINOR_BITS),
            part(0, PATCH_BITS)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_and_printed_in_the_usual_form() {
        assert_eq!(ProgramVersion::THIS.to_string(), env!("CARGO_PKG_VERSION"));
        assert_eq!(ProgramVersion::new(12, 345, 6).to_string(), "12.345.6");
        assert!(ProgramVersion::new(0, 9, 9) < ProgramVersion::new(0, 10, 0));
        assert!(ProgramVersion::new(0, 4095, 0) < ProgramVersion::new(1, 0, 0));
        let bits = ProgramVersion::THIS.to_bits();
        assert_eq!(ProgramVersion::from_bits(bits), ProgramVersion::THIS);
    }
}
