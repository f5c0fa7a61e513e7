//! The task of one connection: it reads all available input, handles it, and writes once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use peeklock_amqp::connection::Millis;
use peeklock_broker::Alarm;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Gateway;
use crate::connection::conversation::{Conversation, Replies};

/// The buffer for one read: small for an idle connection, so that thousands of them are cheap, and larger as reads fill
/// it, so that a busy one needs few system calls.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// The limit on unwritten output. Above it, the task does not read from the peer or receive from shards.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// The time after which a peer that does not read its output is disconnected.
const WRITE_TIME_MAX: Duration = Duration::from_secs(60);
/// The time that a stopping broker grants a connection to receive pending answers, and again to close.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) async fn run<S>(
    gateway: &Gateway,
    stream: S,
    from: Option<SocketAddr>,
    stopping: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut conversation, mut replies) = Conversation::new(gateway, from, Millis(0));
    let result = converse(&mut conversation, &mut replies, stream, stopping).await;
    conversation.leave(replies).await;
    result
}

async fn converse<S>(
    conversation: &mut Conversation<'_>,
    replies: &mut Replies,
    stream: S,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let start = Instant::now();
    let now = || Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut input = BytesMut::new();
    let mut read_bytes = READ_BYTES_MIN;
    let mut stop_deadline = None;
    let mut write_deadline = None;
    let mut needs_flush = false;
    let mut alarm = Alarm::default();
    let mut revision = conversation.access_revision();
    let mut moves = conversation.clock().moves();
    loop {
        if stop_deadline.is_some() && !conversation.is_waiting() {
            conversation.stop();
        }
        let output_len = conversation.prepare_output();
        if output_len == 0 && !needs_flush {
            write_deadline = None;
            if conversation.is_over() {
                return tokio::time::timeout(STOP_TIME_MAX, writer.shutdown()).await?;
            }
        } else if write_deadline.is_none() {
            write_deadline = Some(Instant::now() + WRITE_TIME_MAX);
        }
        let has_room = output_len < OUTPUT_BYTES_MAX;
        let reads = has_room && (stop_deadline.is_none() || conversation.is_closing());
        input.reserve(read_bytes);
        let timeout = conversation.poll_timeout().map(|at| start + Duration::from_millis(at.0));
        let next = [timeout, write_deadline, stop_deadline].into_iter().flatten().min();
        tokio::select! {
            biased;
            pushed = push(&mut writer, conversation.output()), if output_len > 0 || needs_flush => {
                needs_flush = pushed? == Pushed::Written;
                write_deadline = None;
            }
            batch = replies.recv(), if has_room => {
                check_claims(conversation, &mut revision, now());
                conversation.handle_replies(batch.unwrap_or_default());
                if conversation.has_several_shards() {
                    // One commit releases effects of several shards. Their tasks run first, so that one write contains
                    // the replies of all of them.
                    tokio::task::yield_now().await;
                }
                // A part of a large message requests the next part. Without the limit, the loop could load the whole
                // message into memory.
                while conversation.output().len() < OUTPUT_BYTES_MAX
                    && let Ok(batch) = replies.try_recv()
                {
                    conversation.handle_replies(batch);
                }
                conversation.handle_events();
            }
            count = reader.read_buf(&mut input), if reads => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                read_bytes = next_read_bytes(read_bytes, count);
                check_claims(conversation, &mut revision, now());
                conversation.handle_input(now(), &mut input);
                conversation.count_input(count);
                if let Some(moved) = conversation.take_moved() {
                    (*replies, revision) = moved;
                }
            }
            () = alarm.wait_until(next) => {
                let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= Instant::now());
                if is_due(write_deadline) {
                    conversation.log_failure(&"the peer does not take what is sent to it");
                    return Err(io::ErrorKind::TimedOut.into());
                }
                if is_due(stop_deadline) {
                    return Ok(());
                }
                conversation.handle_timeout(now());
            }
            () = changed(&mut revision) => conversation.handle_access_change(),
            () = moves.next() => conversation.handle_access_change(),
            () = stop_asked(&mut stopping), if stop_deadline.is_none() => {
                stop_deadline = Some(Instant::now() + STOP_TIME_MAX);
                conversation.detach_receivers();
            }
        }
        conversation.follow_clock();
        conversation.pump_readers();
        conversation.send_batches().await;
        conversation.log_endings();
    }
}

/// Drops the claims that have ended. A peer that never pauses would otherwise use them until it does, because its input and its replies
/// come before timers and changes.
fn check_claims(conversation: &mut Conversation<'_>, revision: &mut watch::Receiver<u64>, now: Millis) {
    if revision.has_changed().unwrap_or_default() {
        revision.mark_unchanged();
        conversation.handle_access_change();
    }
    conversation.handle_expired_claims(now);
}

#[derive(PartialEq, Eq)]
enum Pushed {
    Written,
    Flushed,
}

/// Writes some of the output. Flushes if there is none: with TLS, written bytes may still be in the session. Safe to
/// cancel.
async fn push(writer: &mut (impl AsyncWrite + Unpin), output: &mut BytesMut) -> io::Result<Pushed> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(Pushed::Flushed);
    }
    match writer.write_buf(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Ok(Pushed::Written),
    }
}

fn next_read_bytes(now: usize, count: usize) -> usize {
    if count >= now {
        (now * 2).min(READ_BYTES_MAX)
    } else if count < now / 8 {
        (now / 2).max(READ_BYTES_MIN)
    } else {
        now
    }
}

async fn changed(revision: &mut watch::Receiver<u64>) {
    if revision.changed().await.is_err() {
        // The sender is gone, so the value cannot change any more.
        std::future::pending().await
    }
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is treated as a stop.
    let _ = stopping.wait_for(|stop| *stop).await;
}
