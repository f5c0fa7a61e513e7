//! A broker that follows the script of a test.

use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, Event, LinkId, Millis, Outgoing};
use peeklock_amqp::{DeliveryTag, Encode, Message, Role, SaslCode};
use peeklock_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The actions of a script on an event, beside calls on the connection.
pub(crate) enum Then {
    GoOn,
    /// Drops the socket without closing the connection.
    Vanish,
}

/// Returns a connected client. The task of the script ends with the connection.
pub(crate) async fn connect<S>(script: S) -> Client
where
    S: FnMut(&mut Connection, Event) -> Then + Send + 'static,
{
    connect_to(Config::server("script"), script).await
}

/// Returns a client that is connected to a broker with these settings.
pub(crate) async fn connect_to<S>(config: Config, script: S) -> Client
where
    S: FnMut(&mut Connection, Event) -> Then + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, config, script).await;
    });
    Client::connect(&format!("amqp://user:secret@{address}")).await.unwrap()
}

async fn serve<S>(mut stream: TcpStream, config: Config, mut script: S)
where
    S: FnMut(&mut Connection, Event) -> Then,
{
    let mut connection = Connection::server(config, Millis(0));
    let mut input = BytesMut::new();
    loop {
        while !connection.output().is_empty() {
            if stream.write_buf(connection.output()).await.is_err() {
                return;
            }
        }
        if connection.is_closed() || !matches!(stream.read_buf(&mut input).await, Ok(1..)) {
            return;
        }
        if !handle(&mut connection, &mut input, &mut script) {
            return;
        }
    }
}

fn handle<S>(connection: &mut Connection, input: &mut BytesMut, script: &mut S) -> bool
where
    S: FnMut(&mut Connection, Event) -> Then,
{
    connection.handle_input(Millis(0), input).unwrap();
    while let Some(event) = connection.poll_event() {
        match event {
            Event::SaslInit { .. } => {
                connection.sasl_outcome(SaslCode::Ok, None);
                connection.handle_input(Millis(0), input).unwrap();
            }
            event => {
                if matches!(script(connection, event), Then::Vanish) {
                    return false;
                }
            }
        }
    }
    true
}

/// Accepts a link; one that the client sends on gets credit.
pub(crate) fn accept(connection: &mut Connection, link: LinkId, client_role: Role) {
    connection.accept(link, AttachReply::default());
    if client_role == Role::Sender {
        connection.set_credit(link, 100);
    }
}

/// Delivers `count` messages with the bodies "0", "1", …
pub(crate) fn deliver(connection: &mut Connection, link: LinkId, from: u32, count: u32) {
    for number in from..from + count {
        let tag = DeliveryTag::from(u128::from(number).to_be_bytes());
        let delivery = Outgoing { tag, message_format: 0, settled: false, state: None };
        let payload = Message::data(number.to_string()).to_bytes();
        connection.send(link, &delivery, &[&payload]).unwrap();
    }
}
