package servicebus

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// topic creates a topic with a subscription for each name.
func (s *suite) topic(subscriptions ...string) string {
	s.Helper()
	topic := s.name()
	_, err := s.admin.CreateTopic(s.ctx, topic, nil)
	s.must(err)
	for _, subscription := range subscriptions {
		_, err := s.admin.CreateSubscription(s.ctx, topic, subscription, nil)
		s.must(err)
	}
	return topic
}

func (s *suite) subscriber(topic, subscription string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	receiver, err := s.client.NewReceiverForSubscription(topic, subscription, options)
	s.must(err)
	return receiver
}

// rule replaces the default rule.
func (s *suite) rule(topic, subscription string, filter admin.RuleFilter, action admin.RuleAction) {
	s.Helper()
	_, err := s.admin.CreateRule(s.ctx, topic, subscription, &admin.CreateRuleOptions{Name: to.Ptr("mine"), Filter: filter, Action: action})
	s.must(err)
	_, err = s.admin.DeleteRule(s.ctx, topic, subscription, "$Default", nil)
	s.must(err)
}

func TestEachSubscriptionGetsTheMatchesOfItsRules(t *testing.T) {
	s := begin(t)
	topic := s.topic("all", "sql", "correlated", "changed", "none")
	s.rule(topic, "sql", &admin.SQLFilter{Expression: "size > @least AND sys.Label = 'red'", Parameters: map[string]any{"@least": int64(3)}}, nil)
	s.rule(topic, "correlated", &admin.CorrelationFilter{Subject: to.Ptr("red"), ApplicationProperties: map[string]any{"size": int64(1)}}, nil)
	s.rule(topic, "changed", &admin.TrueFilter{}, &admin.SQLAction{Expression: "SET size = size + 100; REMOVE colour"})
	s.rule(topic, "none", &admin.FalseFilter{}, nil)
	sender := s.sender(topic)
	for _, message := range []*azservicebus.Message{
		{Body: []byte("a"), Subject: to.Ptr("red"), ApplicationProperties: map[string]any{"size": int64(1), "colour": "x"}},
		{Body: []byte("b"), Subject: to.Ptr("red"), ApplicationProperties: map[string]any{"size": int64(5)}},
		{Body: []byte("c"), Subject: to.Ptr("blue"), ApplicationProperties: map[string]any{"size": int64(9)}},
	} {
		s.must(sender.SendMessage(s.ctx, message, nil))
	}
	for subscription, expected := range map[string]string{"all": "a b c", "sql": "b", "correlated": "a", "changed": "a b c"} {
		count := (len(expected) + 1) / 2
		messages := s.receive(s.subscriber(topic, subscription, nil), count)
		equal(t, subscription, bodies(messages), expected)
		if subscription == "changed" {
			equal(t, "size", messages[0].ApplicationProperties["size"], any(int64(101)))
			equal(t, "colour", messages[0].ApplicationProperties["colour"], nil)
		}
		runtime, err := s.admin.GetSubscriptionRuntimeProperties(s.ctx, topic, subscription, nil)
		s.must(err)
		equal(t, subscription+" has", runtime.TotalMessageCount, int64(count))
	}
	runtime, err := s.admin.GetSubscriptionRuntimeProperties(s.ctx, topic, "none", nil)
	s.must(err)
	equal(t, "none has", runtime.TotalMessageCount, 0)
}

func TestRulesAreReadAndChanged(t *testing.T) {
	s := begin(t)
	topic := s.topic("s")
	_, err := s.admin.CreateRule(s.ctx, topic, "s", &admin.CreateRuleOptions{
		Name: to.Ptr("sql"), Filter: &admin.SQLFilter{Expression: "size > 1"}, Action: &admin.SQLAction{Expression: "SET seen = 1"},
	})
	s.must(err)
	got, err := s.admin.GetRule(s.ctx, topic, "s", "sql", nil)
	s.must(err)
	equal(t, "filter", got.Filter.(*admin.SQLFilter).Expression, "size > 1")
	equal(t, "action", got.Action.(*admin.SQLAction).Expression, "SET seen = 1")
	_, err = s.admin.UpdateRule(s.ctx, topic, "s", admin.RuleProperties{Name: "sql", Filter: &admin.CorrelationFilter{
		ContentType: to.Ptr("c"), ApplicationProperties: map[string]any{"n": int64(1), "f": 0.5, "b": true, "s": "t"},
	}})
	s.must(err)
	var names string
	pager := s.admin.NewListRulesPager(topic, "s", nil)
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must(err)
		for _, rule := range page.Rules {
			names += rule.Name + " "
			if filter, is := rule.Filter.(*admin.CorrelationFilter); is {
				equal(t, "content type", *filter.ContentType, "c")
				equal(t, "properties", len(filter.ApplicationProperties), 4)
			}
		}
	}
	equal(t, "rules", names, "$Default sql ")
	_, err = s.admin.CreateRule(s.ctx, topic, "s", &admin.CreateRuleOptions{Name: to.Ptr("bad"), Filter: &admin.SQLFilter{Expression: "size >"}})
	s.refused(err, 400, "the SQL filter does not parse", "column 7")
	gone, err := s.admin.GetRule(s.ctx, topic, "s", "nothing", nil)
	s.must(err)
	equal(t, "no rule", gone, nil)
}

func TestDeadLettersAndSessionsOfASubscription(t *testing.T) {
	s := begin(t)
	topic := s.topic("plain")
	_, err := s.admin.CreateSubscription(s.ctx, topic, "sessions", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{RequiresSession: to.Ptr(true)},
	})
	s.must(err)
	s.sendTo(topic, "a", "message")
	receiver := s.subscriber(topic, "plain", nil)
	s.must(receiver.DeadLetterMessage(s.ctx, s.receiveOne(receiver), &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
	dead := s.receiveOne(s.subscriber(topic, "plain", deadLetters))
	equal(t, "reason", *dead.DeadLetterReason, "why")
	session, err := s.client.AcceptNextSessionForSubscription(s.ctx, topic, "sessions", nil)
	s.must(err)
	equal(t, "session", session.SessionID(), "a")
	s.must(session.SetSessionState(s.ctx, []byte("s"), nil))
	s.must(session.CompleteMessage(s.ctx, s.receiveOne(session), nil))
}
