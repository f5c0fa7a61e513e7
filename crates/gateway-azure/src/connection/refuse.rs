//! Rejects peers that exceed the connection limit, with a proper AMQP error and at little cost.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use peeklock_amqp::connection::{Config, Connection, Event, Millis};
use peeklock_amqp::{AmqpError, SaslCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The time limit of a rejection.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The limit on input from a peer before it has received the error.
const READ_BYTES: usize = 4 * 1024;

pub(crate) async fn refuse<S>(stream: S, error: AmqpError) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    tokio::time::timeout(TIME_MAX, converse(stream, error)).await?
}

/// Performs the handshake without authentication, because the error belongs in the close frame after it.
async fn converse<S>(stream: S, error: AmqpError) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let mut stream = std::pin::pin!(stream);
    let mut connection = Connection::server(Config::server("peeklock"), Millis(0));
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut error = Some(error);
    while !connection.is_closed() {
        if input.len() >= READ_BYTES || stream.read_buf(&mut input).await? == 0 {
            break;
        }
        let handled = loop {
            let handled = connection.handle_input(Millis(0), &mut input);
            let mut waits_for_sasl = false;
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::SaslInit { .. } => {
                        waits_for_sasl = true;
                        connection.sasl_outcome(SaslCode::Ok, None);
                    }
                    Event::Opened { .. } => connection.close(error.take()),
                    _ => {}
                }
            }
            // A client may send more after its credentials without waiting for the SASL outcome.
            if !waits_for_sasl || handled.is_err() {
                break handled;
            }
        };
        stream.write_all_buf(connection.output()).await?;
        stream.flush().await?;
        if handled.is_err() {
            break;
        }
    }
    stream.shutdown().await
}
