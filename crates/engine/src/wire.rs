/// Bytes that do not say what they should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end inside of {0}")]
    Short(&'static str),
    #[error("{0} has an impossible value")]
    Value(&'static str),
    #[error(
        "the snapshot has format {found}, this program knows {known}; use a newer version of the program"
    )]
    Version { found: u8, known: u8 },
    #[error("the checksum of the snapshot does not fit its bytes")]
    Checksum,
}
