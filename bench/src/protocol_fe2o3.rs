//! Runs the same exchange with fe2o3-amqp on both sides.

use std::collections::VecDeque;

use anyhow::{Result, bail, ensure};
use fe2o3_amqp::acceptor::{ConnectionAcceptor, LinkAcceptor, LinkEndpoint, SessionAcceptor};
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::types::messaging::{Body, Data, Message, Outcome};
use fe2o3_amqp::types::primitives::{Binary, Value};
use fe2o3_amqp::{Connection, Receiver, Sendable, Sender, Session};
use tokio::net::{TcpListener, TcpStream};

use crate::protocol::{BODY_BYTES, CREDIT, Cost, on_two_threads};

pub(crate) fn measure(count: u32) -> Result<Cost> {
    on_two_threads(count, move |address| send(address, count), move |listener| receive(listener, count))
}

async fn send(address: std::net::SocketAddr, count: u32) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::builder().container_id("bench").open_with_stream(stream).await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut sender = Sender::attach(&mut session, "bench", "there").await?;
    let body = Data(Binary::from(vec![b'x'; BODY_BYTES]));
    let message: Sendable<Data> = Message::from(body).into();
    let mut unsettled = VecDeque::new();
    for _ in 0..count {
        if unsettled.len() >= CREDIT as usize
            && let Some(oldest) = unsettled.pop_front()
        {
            accepted(oldest).await?;
        }
        unsettled.push_back(sender.send_batchable_ref(&message).await?);
    }
    for delivery in unsettled {
        accepted(delivery).await?;
    }
    // Every message is accepted; the end of the connection is not measured.
    let _ = sender.close().await;
    let _ = session.end().await;
    let _ = connection.close().await;
    Ok(())
}

async fn accepted<E>(delivery: impl Future<Output = Result<Outcome, E>>) -> Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    ensure!(matches!(delivery.await?, Outcome::Accepted(_)), "a message was not accepted");
    Ok(())
}

async fn receive(listener: TcpListener, count: u32) -> Result<()> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut connection = ConnectionAcceptor::new("bench").accept(stream).await?;
    let mut session = SessionAcceptor::new().accept(&mut connection).await?;
    let mut receiver: Receiver = match LinkAcceptor::new().accept(&mut session).await? {
        LinkEndpoint::Receiver(receiver) => receiver,
        LinkEndpoint::Sender(_) => bail!("the other side wants to receive"),
    };
    receiver.set_credit_mode(CreditMode::Auto(CREDIT));
    receiver.set_credit(CREDIT).await?;
    for _ in 0..count {
        let delivery = receiver.recv::<Body<Value>>().await?;
        receiver.accept(&delivery).await?;
    }
    // The last dispositions are still in flight: this side stays until the other has closed.
    let _ = session.on_end().await;
    let _ = connection.on_close().await;
    Ok(())
}
