//! The promise as tests: one suite that every journal passes.
