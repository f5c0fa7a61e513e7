//! Requests about hubs through `$management`, and the rights to manage, send and read.

use peeklock_access::{PolicyChange, Right, Rights, Secret};
use peeklock_amqp::connection::SaslClient;
use peeklock_amqp::{Body, Message, Value, condition};

use crate::hubs::{earliest, hub, reader_at, rig};
use crate::support::{Client, Management, Response, sender};

impl Client {
    async fn ask(
        &mut self,
        management: &Management,
        properties: &[(&'static str, &'static str)],
        body: Vec<(&'static str, Value)>,
    ) -> Response {
        let body: Vec<_> = body.into_iter().map(|(key, value)| (Value::from(key), value)).collect();
        let mut request = Message::value(body).with_message_id("ask");
        for (key, value) in properties {
            request = request.with_property(*key, *value);
        }
        self.start_send(management.requests, &request, None);
        let response = self.next_response(management).await;
        let status = response.property("status-code").and_then(Value::as_i32).unwrap();
        let condition = response.property("error-condition").and_then(Value::as_str).map(str::to_owned);
        let Body::Value(body) = response.body else { panic!("{:?}", response.body) };
        Response { status, condition, body }
    }
}

#[tokio::test(start_paused = true)]
async fn rights_are_required() {
    let rig = rig(1).await;
    let mut listener = rig.client_with(SaslClient::plain("listener", "secret")).await;
    for address in ["clicks", "clicks/Partitions/0", "clicks/Publishers/p"] {
        let refused = listener.attach(sender(address)).await.unwrap_err();
        assert_eq!(refused.condition, condition::UNAUTHORIZED_ACCESS);
    }
    listener.read(earliest()).await;
    let mut only_sender = rig.client_with(SaslClient::plain("sender", "secret")).await;
    assert_eq!(only_sender.attach(earliest()).await.unwrap_err().condition, condition::UNAUTHORIZED_ACCESS);
    only_sender.send_all("clicks", &["a"]).await;
    let management = only_sender.management("").await;
    let read = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", "clicks")];
    assert_eq!(only_sender.ask(&management, &read, Vec::new()).await.status, 200);
    let list = [("operation", "peeklock:list-ownerships"), ("name", "clicks")];
    assert_eq!(only_sender.ask(&management, &list, Vec::new()).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn management_describes_hubs_and_partitions() {
    let rig = rig(2).await;
    let mut client = rig.client().await;
    client.send_all("clicks/Partitions/1", &["a", "b"]).await;
    for address in ["", "clicks"] {
        let management = client.management(address).await;
        let read = |kind, more: &[(&'static str, &'static str)]| {
            [&[("operation", "READ"), ("type", kind), ("name", "clicks")][..], more].concat()
        };
        let found = client.ask(&management, &read("com.microsoft:eventhub", &[]), Vec::new()).await;
        assert_eq!(found.status, 200);
        assert_eq!(found.get("partition_count"), Value::Int(2));
        let ids = found.get("partition_ids");
        assert_eq!(ids.as_array().unwrap().elements(), [Value::from("0"), Value::from("1")]);
        let partition = |number| read("com.microsoft:partition", &[("partition", number)]);
        let found = client.ask(&management, &partition("1"), Vec::new()).await;
        assert_eq!(found.get("last_enqueued_sequence_number"), Value::Long(1));
        assert_eq!(found.get("begin_sequence_number"), Value::Long(0));
        assert_eq!(found.get("is_partition_empty"), Value::Boolean(false));
        let empty = client.ask(&management, &partition("0"), Vec::new()).await;
        assert_eq!(empty.get("last_enqueued_offset"), Value::from("-1"));
        for unknown in ["2", "XYZ"] {
            let missing = client.ask(&management, &partition(unknown), Vec::new()).await;
            let expected = (400, Some(condition::ARGUMENT_OUT_OF_RANGE));
            assert_eq!((missing.status, missing.condition.as_deref()), expected);
        }
    }
    let mut client = rig.client().await;
    let management = client.management("").await;
    let read = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", "nothing")];
    assert_eq!(client.ask(&management, &read, Vec::new()).await.status, 404);
    let nonsense = [("operation", "READ"), ("type", "color"), ("name", "clicks")];
    assert_eq!(client.ask(&management, &nonsense, Vec::new()).await.status, 400);
    let of_hub = client.management("clicks").await;
    let peek = vec![("from-sequence-number", 0_i64.into()), ("message-count", 10.into())];
    let refused = client.request(&of_hub, "com.microsoft:peek-message", peek).await;
    assert_eq!((refused.status, refused.condition.as_deref()), (400, Some(condition::NOT_ALLOWED)));
}

#[tokio::test(start_paused = true)]
async fn ownership_is_compare_and_set_and_checkpoints_only_advance() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks", &["a", "b", "c"]).await;
    let management = client.management("clicks").await;
    let claim = |owner: &'static str, etag: Option<Value>| {
        let etag = etag.unwrap_or(Value::Null);
        vec![
            ("consumer-group", "audit".into()),
            ("partition", "0".into()),
            ("owner", owner.into()),
            ("etag", etag),
        ]
    };
    let operation = [("operation", "peeklock:claim-ownership")];
    let first = client.ask(&management, &operation, claim("first", None)).await;
    assert_eq!(first.status, 200, "{first:?}");
    let stale = client.ask(&management, &operation, claim("second", None)).await;
    assert_eq!((stale.status, stale.condition.as_deref()), (412, Some(condition::PRECONDITION_FAILED)));
    let second = client.ask(&management, &operation, claim("second", Some(first.get("etag")))).await;
    assert_eq!(second.status, 200);
    assert_ne!(second.get("epoch"), first.get("epoch"));

    let checkpoint = |owner: &'static str, epoch: Value, sequence: i64| {
        vec![
            ("consumer-group", "audit".into()),
            ("partition", 0.into()),
            ("sequence-number", sequence.into()),
            ("owner", owner.into()),
            ("epoch", epoch),
        ]
    };
    let update = [("operation", "peeklock:update-checkpoint")];
    let former = client.ask(&management, &update, checkpoint("first", first.get("epoch"), 1)).await;
    assert_eq!((former.status, former.condition.as_deref()), (409, Some(condition::PARTITION_NOT_OWNED)));
    let epoch = || second.get("epoch");
    let done = client.ask(&management, &update, checkpoint("second", epoch(), 1)).await;
    assert_eq!((done.status, done.get("offset")), (200, Value::from("1")));
    assert_eq!(client.ask(&management, &update, checkpoint("second", epoch(), 0)).await.status, 409);
    let beyond = client.ask(&management, &update, checkpoint("second", epoch(), 3)).await;
    assert_eq!(beyond.condition.as_deref(), Some(condition::ARGUMENT_OUT_OF_RANGE));

    let group = || vec![("consumer-group", "audit".into())];
    let owners = client.ask(&management, &[("operation", "peeklock:list-ownerships")], group()).await;
    let owners = owners.get("ownerships");
    assert_eq!(owners.as_list().unwrap()[0].lookup("owner"), Some(&Value::from("second")));
    let checkpoints = client.ask(&management, &[("operation", "peeklock:list-checkpoints")], group()).await;
    let checkpoints = checkpoints.get("checkpoints");
    assert_eq!(checkpoints.as_list().unwrap()[0].lookup("sequence-number"), Some(&Value::Long(1)));
    let unknown = vec![("consumer-group", "nobody".into())];
    assert_eq!(
        client.ask(&management, &[("operation", "peeklock:list-checkpoints")], unknown).await.status,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_may_contain_its_own_token() {
    let rig = rig(1).await;
    let mut client = rig.client_with(SaslClient::anonymous()).await;
    let management = client.management("").await;
    let token = |key: &'static str, audience: &str| -> &'static str {
        let token = crate::access::token(&rig, key, &Secret::new("secret"), audience, 600);
        Box::leak(token.into_boxed_str())
    };
    let read = |token| {
        let name = ("name", "clicks");
        [("operation", "READ"), ("type", "com.microsoft:eventhub"), name, ("security_token", token)]
    };
    assert_eq!(client.ask(&management, &read(token("all", "sb://h/clicks")), Vec::new()).await.status, 200);
    for bad in [token("all", "sb://h/other"), token("nobody", "sb://h/clicks"), "nonsense"] {
        assert_eq!(client.ask(&management, &read(bad), Vec::new()).await.status, 401);
    }
    let refused = client.attach(earliest()).await.unwrap_err();
    assert_eq!(refused.condition, condition::UNAUTHORIZED_ACCESS, "the token was valid for the request only");

    let mut entitled = rig.client().await;
    let management = entitled.management("").await;
    let bad = entitled.ask(&management, &read(token("nobody", "sb://h/clicks")), Vec::new()).await;
    assert_eq!(bad.status, 401, "a valid claim of the connection makes no difference");
    assert_eq!(bad.condition.as_deref(), Some(condition::UNAUTHORIZED_ACCESS));
    assert_eq!(entitled.ask(&management, &read(token("all", "sb://h/")), Vec::new()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_hub_is_valid_for_its_parts() {
    let rig = rig(1).await;
    let change = PolicyChange { rights: Some(Rights::of(&[Right::Listen])), ..PolicyChange::default() };
    let (policy, _) = rig.access.put(Some(&hub()), "reader", change, rig.broker.clock().now()).unwrap();
    let mut client = rig.client_with(SaslClient::anonymous()).await;
    let tokens = client.tokens().await;
    let audience = "sb://h/clicks/consumergroups/$default";
    let token = crate::access::token(&rig, "reader", &policy.primary, audience, 600);
    assert_eq!(client.put_token(&tokens, audience, token).await, 202);
    client.read(earliest()).await;
    let other_group = reader_at("clicks/ConsumerGroups/audit/Partitions/0", None);
    assert_eq!(client.attach(other_group).await.unwrap_err().condition, condition::UNAUTHORIZED_ACCESS);
    let refused = client.attach(sender("clicks")).await.unwrap_err();
    assert_eq!(refused.condition, condition::UNAUTHORIZED_ACCESS);
}
