//! Contains only tests; see the `tests` folder.
