//! The `peeklock` binary as users run it: a broker in one process, commands in others.

mod broker;
mod errors;
mod messages;
mod queues;
mod serve;
mod tls;
