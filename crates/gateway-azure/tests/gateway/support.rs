//! A broker in memory behind the gateway, and a client with short methods on the other end of a pipe.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_access::{Access, Policy, Right};
use peeklock_amqp::connection::{
    Config, Connection, Delivery, DeliveryId, Event, LinkId, Millis, Outgoing, SaslClient, SessionId,
};
use peeklock_amqp::{
    AmqpError, Attach, Body, Coordinator, Declare, DeliveryState, DeliveryTag, Discharge, Encode, Fields,
    Message, ReceiverSettleMode, Role, SenderSettleMode, Source, Symbol, Target, Value,
};
use peeklock_broker::{Broker, Clock, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_journal::MemoryJournal;
use peeklock_types::{EntityName, QueueSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

pub(crate) const SESSION_FILTER: &str = "com.microsoft:session-filter";

pub(crate) struct Rig {
    pub(crate) broker: Broker,
    pub(crate) journal: MemoryJournal,
    pub(crate) access: Access,
    gateway: Arc<Gateway>,
    _running: Running,
    stop: watch::Sender<bool>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_at(Clock::start()).await
    }

    pub(crate) async fn start_at(clock: Clock) -> Self {
        let journal = MemoryJournal::new();
        let describe = peeklock_message::describe;
        let (broker, running, _) = Broker::open_at(&journal, clock, describe).await.unwrap();
        let policies = vec![
            Policy::with_one_key("RootManageSharedAccessKey", "secret", &[Right::Manage]),
            Policy::with_one_key("all", "secret", &[Right::Manage]),
            Policy::with_one_key("sender", "secret", &[Right::Send]),
            Policy::with_one_key("listener", "secret", &[Right::Listen]),
        ];
        let access = Access::open(None, policies).unwrap();
        let gateway = Arc::new(Gateway::new(broker.clone(), access.clone()));
        Rig { broker, journal, access, gateway, _running: running, stop: watch::channel(false).0 }
    }

    pub(crate) async fn with_queue(name: &str, settings: QueueSettings) -> Self {
        let rig = Self::start().await;
        rig.queue(name, settings).await;
        rig
    }

    pub(crate) async fn queue(&self, name: &str, settings: QueueSettings) {
        self.broker.create_queue(EntityName::parse(name).unwrap(), settings).await.unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(SaslClient::plain("all", "secret")).await
    }

    /// Puts the same broker behind another gateway.
    pub(crate) fn behind(self, gateway: Gateway) -> Self {
        Rig { gateway: Arc::new(gateway), ..self }
    }

    pub(crate) async fn client_with(&self, sasl: SaslClient) -> Client {
        self.client_of("localhost", sasl).await
    }

    /// Opens a new connection without any frames.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (stream, other_end) = tokio::io::duplex(1 << 20);
        let (gateway, stopping) = (Arc::clone(&self.gateway), self.stop.subscribe());
        tokio::spawn(async move { gateway.serve(other_end, None, stopping).await });
        stream
    }

    pub(crate) async fn client_of(&self, host: &'static str, sasl: SaslClient) -> Client {
        self.client_as(Config::client("test", host), sasl).await
    }

    /// Connects a client with this configuration.
    pub(crate) async fn client_as(&self, config: Config, sasl: SaslClient) -> Client {
        let stream = self.connect();
        let mut connection = Connection::client(config, Some(sasl), Millis(0));
        let session = connection.begin().unwrap();
        let events = VecDeque::new();
        let mut client =
            Client { connection, stream, input: BytesMut::new(), events, session, links: 0, tags: 0 };
        client.until(|event| matches!(event, Event::Opened { .. }).then_some(())).await;
        client
    }
}

pub(crate) fn sessions() -> QueueSettings {
    QueueSettings { requires_session: true, ..QueueSettings::default() }
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    stream: DuplexStream,
    input: BytesMut,
    events: VecDeque<Event>,
    session: SessionId,
    links: u32,
    tags: u32,
}

/// The response to a management request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: i32,
    pub(crate) condition: Option<String>,
    pub(crate) body: Value,
}

impl Response {
    pub(crate) fn get(&self, key: &str) -> Value {
        self.body.lookup(key).cloned().unwrap_or_default()
    }
}

pub(crate) type Refused = Result<(LinkId, Box<Attach>), AmqpError>;

impl Client {
    /// Writes the output and reads until input arrives.
    pub(crate) async fn turn(&mut self) {
        self.flush().await;
        let read = self.stream.read_buf(&mut self.input);
        let count =
            tokio::time::timeout(Duration::from_secs(600), read).await.expect("an answer before the timeout");
        assert!(count.unwrap() > 0, "the gateway closed the connection");
        self.connection.handle_input(Millis(0), &mut self.input).unwrap();
        while let Some(event) = self.connection.poll_event() {
            self.events.push_back(event);
        }
    }

    pub(crate) async fn flush(&mut self) {
        let output = self.connection.output().split();
        self.stream.write_all(&output).await.unwrap();
    }

    /// Returns the first matching event; other events stay in the queue.
    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            if let Some(at) = self.events.iter().position(|event| wanted(event).is_some()) {
                let event = self.events.remove(at).unwrap();
                return wanted(&event).unwrap();
            }
            self.turn().await;
        }
    }

    pub(crate) fn start_attach(&mut self, attach: Attach) -> LinkId {
        self.links += 1;
        let name = format!("link-{}", self.links);
        self.connection.attach(self.session, Attach { name: name.into(), ..attach }).unwrap()
    }

    pub(crate) async fn attached(&mut self, link: LinkId) -> Refused {
        self.until(|event| match event {
            Event::Attached { link: found, attach } if *found == link => Some(Ok((link, attach.clone()))),
            Event::Detached { link: found, error, .. } if *found == link => {
                Some(Err(error.clone().expect("a refusal with an error")))
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn attach(&mut self, attach: Attach) -> Refused {
        let link = self.start_attach(attach);
        self.attached(link).await
    }

    /// Returns the error with which a link is detached.
    pub(crate) async fn detached(&mut self, link: LinkId) -> AmqpError {
        self.until(|event| match event {
            Event::Detached { link: found, error, .. } if *found == link => Some(error.clone().unwrap()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn sender(&mut self, name: &'static str) -> LinkId {
        self.attach(sender(name)).await.unwrap().0
    }

    pub(crate) async fn receiver(&mut self, name: &'static str) -> LinkId {
        self.attach(receiver(name, None)).await.unwrap().0
    }

    pub(crate) async fn session(&mut self, name: &'static str, filter: impl Into<Value>) -> Refused {
        self.attach(receiver(name, Some(filter.into()))).await
    }

    pub(crate) fn start_send(
        &mut self,
        link: LinkId,
        message: &Message,
        state: Option<DeliveryState>,
    ) -> DeliveryTag {
        self.tags += 1;
        let tag = DeliveryTag::from(self.tags);
        let outgoing = Outgoing { tag, message_format: 0, settled: false, state };
        self.connection.send(link, &outgoing, &[&message.to_bytes()]).unwrap();
        tag
    }

    pub(crate) async fn outcome(&mut self, link: LinkId, tag: DeliveryTag) -> DeliveryState {
        self.until(|event| match event {
            Event::Disposition { link: found, tag: of, state, settled: true, .. }
                if *found == link && *of == tag =>
            {
                Some(state.clone().expect("an outcome"))
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn send(&mut self, link: LinkId, message: &Message) -> DeliveryState {
        self.send_in(link, message, None).await
    }

    pub(crate) async fn send_in(
        &mut self,
        link: LinkId,
        message: &Message,
        txn: Option<&Bytes>,
    ) -> DeliveryState {
        // Credit arrives with the first flow.
        while self.connection.credit(link) == 0 {
            self.turn().await;
        }
        let state = txn.map(|txn_id| DeliveryState::Transactional { txn_id: txn_id.clone(), outcome: None });
        let tag = self.start_send(link, message, state);
        self.outcome(link, tag).await
    }

    pub(crate) async fn receive(&mut self, link: LinkId) -> (Delivery, Message) {
        self.connection.set_credit(link, 1);
        let delivery = self
            .until(|event| match event {
                Event::Delivery { link: found, delivery } if *found == link => Some(delivery.clone()),
                _ => None,
            })
            .await;
        let message = Message::decode(&delivery.payload).unwrap();
        (delivery, message)
    }

    pub(crate) async fn settle(
        &mut self,
        link: LinkId,
        id: DeliveryId,
        state: DeliveryState,
    ) -> DeliveryState {
        self.connection.set_outcome(link, id, state);
        self.settled(link, id).await
    }

    /// Returns the state with which the broker settles a delivery.
    pub(crate) async fn settled(&mut self, link: LinkId, id: DeliveryId) -> DeliveryState {
        let (state, _) = self.disposition(link, id, |settled| settled).await;
        state
    }

    /// Settles a delivery in a transaction. Returns whether the answer settles it on the wire.
    pub(crate) async fn settle_in(
        &mut self,
        link: LinkId,
        id: DeliveryId,
        state: DeliveryState,
    ) -> (DeliveryState, bool) {
        self.connection.set_outcome(link, id, state);
        self.disposition(link, id, |_| true).await
    }

    async fn disposition(
        &mut self,
        link: LinkId,
        id: DeliveryId,
        wanted: impl Fn(bool) -> bool,
    ) -> (DeliveryState, bool) {
        self.until(|event| match event {
            Event::Disposition { link: found, id: of, state, settled, .. }
                if *found == link && *of == id && wanted(*settled) =>
            {
                Some((state.clone().expect("an outcome"), *settled))
            }
            _ => None,
        })
        .await
    }

    /// Attaches links to the management of an entity, or of the namespace if the name is empty.
    pub(crate) async fn management(&mut self, entity: &str) -> Management {
        self.management_with(entity, 1000).await
    }

    /// Does the same with this credit for responses.
    pub(crate) async fn management_with(&mut self, entity: &str, credit: u32) -> Management {
        let address =
            if entity.is_empty() { "$management".to_owned() } else { format!("{entity}/$management") };
        self.service(address, credit).await
    }

    async fn service(&mut self, address: String, credit: u32) -> Management {
        let target = Target::with_address("replies");
        let source = Some(Source::with_address(address.clone()));
        let (target, max_message_size) = (Some(target), Some(200 << 20));
        let responses = Attach { source, target, max_message_size, ..Attach::new("", 0, Role::Receiver) };
        let responses = self.attach(responses).await.unwrap().0;
        self.connection.set_credit(responses, credit);
        let target = Some(Target::with_address(address));
        let source = Some(Source::default());
        let requests =
            self.attach(Attach { source, target, ..Attach::new("", 0, Role::Sender) }).await.unwrap().0;
        while self.connection.credit(requests) == 0 {
            self.turn().await;
        }
        Management { requests, responses }
    }

    /// Attaches links to the token service.
    pub(crate) async fn tokens(&mut self) -> Management {
        self.service("$cbs".to_owned(), 1000).await
    }

    /// Puts a token and returns the status.
    pub(crate) async fn put_token(&mut self, tokens: &Management, audience: &str, token: String) -> i32 {
        let response = self.put_token_response(tokens, audience, token).await;
        response.property("status-code").and_then(Value::as_i32).unwrap()
    }

    pub(crate) async fn put_token_response(
        &mut self,
        tokens: &Management,
        audience: &str,
        token: String,
    ) -> Message {
        let request = Message::value(token)
            .with_message_id("put")
            .with_property("operation", "put-token")
            .with_property("name", audience.to_owned());
        self.start_send(tokens.requests, &request, None);
        self.next_response(tokens).await
    }

    pub(crate) fn start_request(
        &mut self,
        management: &Management,
        operation: &'static str,
        body: Vec<(&'static str, Value)>,
        txn: Option<&Bytes>,
    ) {
        let body = body.into_iter().map(|(key, value)| (Value::from(key), value)).collect::<Vec<_>>();
        let message = Message::value(body).with_message_id(operation).with_property("operation", operation);
        let state = txn.map(|txn_id| DeliveryState::Transactional { txn_id: txn_id.clone(), outcome: None });
        self.start_send(management.requests, &message, state);
    }

    pub(crate) async fn next_response(&mut self, management: &Management) -> Message {
        let delivery = self
            .until(|event| match event {
                Event::Delivery { link, delivery } if *link == management.responses => Some(delivery.clone()),
                _ => None,
            })
            .await;
        Message::decode(&delivery.payload).unwrap()
    }

    pub(crate) async fn response(&mut self, management: &Management) -> (String, Response) {
        let message = self.next_response(management).await;
        let property = |key: &str| {
            message
                .application_properties
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.clone())
        };
        let Some(Value::Int(status)) = property("statusCode") else { panic!("{message:?}") };
        let condition = property("errorCondition").map(|condition| match condition {
            Value::Symbol(condition) => condition.to_string(),
            other => panic!("{other:?}"),
        });
        let Body::Value(body) = message.body else { panic!("{:?}", message.body) };
        let correlation = Value::from(message.properties.correlation_id.unwrap());
        (correlation.as_str().unwrap().to_owned(), Response { status, condition, body })
    }

    pub(crate) async fn request(
        &mut self,
        management: &Management,
        operation: &'static str,
        body: Vec<(&'static str, Value)>,
    ) -> Response {
        self.request_in(management, operation, body, None).await
    }

    pub(crate) async fn request_in(
        &mut self,
        management: &Management,
        operation: &'static str,
        body: Vec<(&'static str, Value)>,
        txn: Option<&Bytes>,
    ) -> Response {
        self.start_request(management, operation, body, txn);
        let (correlation, response) = self.response(management).await;
        assert_eq!(correlation, operation);
        response
    }

    pub(crate) async fn coordinator(&mut self) -> (LinkId, Box<Attach>) {
        let target = Some(Target::Coordinator(Coordinator::default()));
        let attach = Attach { source: Some(Source::default()), target, ..Attach::new("", 0, Role::Sender) };
        self.attach(attach).await.unwrap()
    }

    pub(crate) async fn declare(&mut self, control: LinkId) -> Bytes {
        match self.send(control, &body_of(&Declare::default())).await {
            DeliveryState::Declared { txn_id } => txn_id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn discharge(&mut self, control: LinkId, txn_id: &Bytes, fail: bool) -> DeliveryState {
        let discharge = Discharge { txn_id: txn_id.clone(), fail: Some(fail) };
        self.send(control, &body_of(&discharge)).await
    }

    /// Returns the number of messages that a peek finds.
    pub(crate) async fn count(&mut self, management: &Management) -> usize {
        let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 100.into())];
        let response = self.request(management, "com.microsoft:peek-message", body).await;
        response.get("messages").as_list().map_or(0, <[Value]>::len)
    }
}

pub(crate) struct Management {
    pub(crate) requests: LinkId,
    pub(crate) responses: LinkId,
}

/// Returns a message whose body is one described value.
fn body_of(value: &impl Encode) -> Message {
    use peeklock_amqp::Decode;
    Message::value(Value::decode_all(&value.to_bytes()).unwrap())
}

pub(crate) fn sender(name: &'static str) -> Attach {
    let target = Some(Target::with_address(name));
    Attach { source: Some(Source::default()), target, ..Attach::new("", 0, Role::Sender) }
}

pub(crate) fn receiver(name: &'static str, filter: Option<Value>) -> Attach {
    let filter = filter.map(|value| Fields::new().with(SESSION_FILTER, value));
    let source = Source { filter, ..Source::with_address(name) };
    Attach {
        source: Some(source),
        target: Some(Target::with_address("here")),
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..Attach::new("", 0, Role::Receiver)
    }
}

pub(crate) fn with_timeout(attach: Attach, timeout_ms: u32) -> Attach {
    Attach { properties: Some(Fields::new().with("com.microsoft:timeout", timeout_ms)), ..attach }
}

pub(crate) fn message(body: &'static str) -> Message {
    Message::data(body).with_message_id(body)
}

pub(crate) fn in_session(body: &'static str, session: &'static str) -> Message {
    let mut message = message(body);
    message.properties.group_id = Some(session.into());
    message
}

pub(crate) fn modified(annotations: Fields) -> DeliveryState {
    DeliveryState::Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(false),
        message_annotations: Some(annotations),
    }
}

/// Returns the condition of a rejection, also inside a transactional state.
pub(crate) fn condition_of(state: &DeliveryState) -> String {
    match state {
        DeliveryState::Rejected { error: Some(error) } => error.condition.to_string(),
        DeliveryState::Transactional { outcome: Some(outcome), .. } => condition_of(outcome),
        other => panic!("not a rejection: {other:?}"),
    }
}

pub(crate) fn symbol(text: &'static str) -> Symbol {
    Symbol::from_static(text)
}
