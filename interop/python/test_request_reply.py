"""Requests with replies: each requester waits in a separate session of one shared reply queue."""

import threading

from azure.servicebus import ServiceBusMessage

from steps import assert_empty, receive_one, text

REQUESTER_COUNT = 3


def test_every_requester_gets_the_reply_to_its_own_request(flavour, broker, create):
    requests, replies = create(), create(requires_session=True)
    answers = {}
    server = threading.Thread(target=serve, args=(flavour, broker, requests, REQUESTER_COUNT))
    names = [f"requester-{number}" for number in range(REQUESTER_COUNT)]
    clients = [
        threading.Thread(target=request, args=(flavour, broker, requests, replies, name, answers)) for name in names
    ]
    for thread in [server, *clients]:
        thread.start()
    for thread in [server, *clients]:
        thread.join()
    assert answers == {name: (f"QUESTION OF {name.upper()}", f"id-{name}", name) for name in names}
    with flavour.client(broker.connection_string) as client:
        assert_empty(client, requests)
        assert list(client.list_queue_sessions(replies)) == []


def request(flavour, broker, requests, replies, name, answers):
    with flavour.client(broker.connection_string) as client:
        # The session is accepted before the request is sent, so the reply cannot be missed.
        with client.get_queue_receiver(replies, session_id=name) as receiver, client.get_queue_sender(requests) as sender:
            question = f"question of {name}"
            sender.send_messages(
                ServiceBusMessage(question, message_id=f"id-{name}", reply_to=replies, reply_to_session_id=name)
            )
            answer = receive_one(receiver)
            receiver.complete_message(answer)
            answers[name] = (text(answer), answer.correlation_id, answer.session_id)


def serve(flavour, broker, requests, count):
    with flavour.client(broker.connection_string) as client, client.get_queue_receiver(requests) as receiver:
        for _ in range(count):
            question = receive_one(receiver)
            with client.get_queue_sender(question.reply_to) as sender:
                sender.send_messages(
                    ServiceBusMessage(
                        text(question).upper(),
                        session_id=question.reply_to_session_id,
                        correlation_id=question.message_id,
                    )
                )
            receiver.complete_message(question)
