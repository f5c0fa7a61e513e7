package servicebus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (s *suite) sessionQueue() string {
	s.Helper()
	return s.queue(&admin.QueueProperties{RequiresSession: to.Ptr(true)})
}

func (s *suite) sendTo(queue, session string, bodies ...string) {
	s.Helper()
	sender := s.sender(queue)
	for _, body := range bodies {
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(body), SessionID: &session}, nil))
	}
}

func (s *suite) accept(queue, session string) *azservicebus.SessionReceiver {
	s.Helper()
	receiver, err := s.client.AcceptSessionForQueue(s.ctx, queue, session, nil)
	s.must(err)
	return receiver
}

func TestASessionDeliversItsMessagesInOrder(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	s.sendTo(queue, "a", "1", "2", "3")
	s.sendTo(queue, "b", "x")
	session := s.accept(queue, "a")
	equal(t, "id", session.SessionID(), "a")
	messages := s.receive(session, 3)
	equal(t, "order", bodies(messages), "1 2 3")
	equal(t, "session", *messages[0].SessionID, "a")
	for _, message := range messages {
		s.must(session.CompleteMessage(s.ctx, message, nil))
	}
	s.must(session.Close(s.ctx))
	next, err := s.client.AcceptNextSessionForQueue(s.ctx, queue, nil)
	s.must(err)
	equal(t, "next session", next.SessionID(), "b")
	equal(t, "its message", bodies(s.receive(next, 1)), "x")
}

func TestASessionKeepsItsState(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	session := s.accept(queue, "a")
	state, err := session.GetSessionState(s.ctx, nil)
	s.must(err)
	equal(t, "state at first", len(state), 0)
	s.must(session.SetSessionState(s.ctx, []byte("half way"), nil))
	s.must(session.Close(s.ctx))
	session = s.accept(queue, "a")
	state, err = session.GetSessionState(s.ctx, nil)
	s.must(err)
	equal(t, "state", string(state), "half way")
	s.must(session.SetSessionState(s.ctx, nil, nil))
	state, err = session.GetSessionState(s.ctx, nil)
	s.must(err)
	equal(t, "state at last", len(state), 0)
}

func TestASessionLockIsRenewed(t *testing.T) {
	s := begin(t)
	session := s.accept(s.sessionQueue(), "a")
	before := session.LockedUntil()
	if before.IsZero() {
		t.Fatal("the session has no lock time")
	}
	for !session.LockedUntil().After(before) {
		s.must(session.RenewSessionLock(s.ctx, nil))
	}
}

func TestASessionIsSettledInEveryWay(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	s.sendTo(queue, "a", "abandon", "defer", "dead", "peek")
	session := s.accept(queue, "a")
	peeked, err := session.PeekMessages(s.ctx, 10, nil)
	s.must(err)
	equal(t, "peeked", bodies(peeked), "abandon defer dead peek")
	messages := s.receive(session, 3)
	s.must(session.DeferMessage(s.ctx, messages[1], nil))
	s.must(session.DeadLetterMessage(s.ctx, messages[2], &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
	s.must(session.AbandonMessage(s.ctx, messages[0], nil))
	equal(t, "again", string(s.receiveOne(session).Body), "abandon")
	deferred, err := session.ReceiveDeferredMessages(s.ctx, []int64{*messages[1].SequenceNumber}, nil)
	s.must(err)
	s.must(session.CompleteMessage(s.ctx, deferred[0], nil))
	dead := s.receiveOne(s.receiver(queue, deadLetters))
	equal(t, "dead", string(dead.Body)+" "+*dead.SessionID+" "+*dead.DeadLetterReason, "dead a why")
}

func TestSessionsAreListedPageByPage(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	sender := s.sender(queue)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must(err)
	var expected []string
	for number := range 130 {
		id := fmt.Sprintf("session-%03d", number)
		expected = append(expected, id)
		s.must(batch.AddMessage(&azservicebus.Message{SessionID: &id}, nil))
	}
	s.must(sender.SendMessageBatch(s.ctx, batch, nil))
	s.must(s.accept(queue, "with-state").SetSessionState(s.ctx, []byte("s"), nil))
	found := s.listSessions(queue, nil)
	equal(t, "sessions", strings.Join(found, " "), strings.Join(append(expected, "with-state"), " "))
	since := &azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: to.Ptr(time.Now().Add(-time.Hour))}
	equal(t, "with a newer state", strings.Join(s.listSessions(queue, since), " "), "with-state")
}

func (s *suite) listSessions(queue string, options *azservicebus.ListSessionsOptions) []string {
	s.Helper()
	var found []string
	pager := s.client.NewListSessionsForQueuePager(queue, options)
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must(err)
		found = append(found, page.Sessions...)
	}
	slices.Sort(found)
	return found
}

func TestNoSessionIsATimeout(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	// The SDK sends the timeout of this context to the broker, and either side may give up first.
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	_, err := s.client.AcceptNextSessionForQueue(ctx, queue, nil)
	var typed *azservicebus.Error
	if errors.As(err, &typed) {
		equal(t, "code", typed.Code, azservicebus.CodeTimeout)
		return
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestALockedSessionIsRejected(t *testing.T) {
	s := begin(t)
	queue := s.sessionQueue()
	s.accept(queue, "a")
	other := newClient(t, shared.ConnectionString(), once)
	_, err := other.AcceptSessionForQueue(s.ctx, queue, "a", nil)
	s.says(err, "session-cannot-be-locked")
}
