// The behaviours that RocketMQ's own Go client must see, a function each. A line for each row: `row<TAB>ok` or what was seen.
//
// usage: go run . ADDRESS ROW...
package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	ok   = consumer.ConsumeSuccess
	wait = 60 * time.Second
	busy = 3 // so many times as long as a row says may it take on a machine with other work
)

var (
	address string
	salt    string
	closing []func()
	number  int
	all     = map[string]func(){
		"send-sync": sendSync, "send-async": sendAsync, "send-oneway": sendOneway, "send-batch": sendBatch,
		"fields": fields, "compressed": compressed, "too-big": tooBig, "no-topic": noTopic,
		"push": push, "push-orderly": pushOrderly, "broadcast": broadcast, "tag-filter": tagFilter, "sql-filter": sqlFilter,
		"long-poll": longPoll, "pull": pull, "rebalance": rebalance, "quick-start": quickStart, "retry-new": retryNew, "dlq": deadLetter,
		"delay-level": delayLevel, "timer": timer, "tx-commit": txCommit, "tx-rollback": txRollback, "tx-check": txCheck,
	}
)

func main() {
	rlog.SetLogLevel("fatal")
	address = os.Args[1]
	failed := 0
	for _, name := range os.Args[2:] {
		salt = strconv.FormatUint(rand.New(rand.NewSource(time.Now().UnixNano())).Uint64(), 16)
		seen := played(all[name])
		if seen != "ok" {
			failed = 1
		}
		fmt.Printf("%s\t%s\n", name, seen)
	}
	os.Exit(failed)
}

func played(row func()) (seen string) {
	defer func() {
		if failure := recover(); failure != nil {
			seen = strings.ReplaceAll(fmt.Sprint(failure), "\n", " ")
		}
		for at := len(closing) - 1; at >= 0; at-- {
			closing[at]()
		}
		closing = nil
	}()
	row()
	return "ok"
}

// --- producers ---

func sendSync() {
	topic, sender := named("sync"), newProducer()
	queues, ids := map[int]bool{}, map[string]bool{}
	for i := 0; i < 8; i++ {
		result := send(sender, message(topic, i))
		require(result.Status == primitive.SendOK && len(result.OffsetMsgID) == 32, result)
		queues[result.MessageQueue.QueueId] = true
		ids[result.MsgID] = true
	}
	require(len(queues) == 4, queues)
	received := listen(topic, "g"+topic, "*")
	received.await(8)
	require(len(ids) == 8 && fmt.Sprint(received.ids()) == fmt.Sprint(sorted(ids)), received.ids())
}

func sendAsync() {
	topic, sender := named("async"), newProducer()
	var answered, failed atomic.Int32
	for i := 0; i < 100; i++ {
		done(sender.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				failed.Add(1)
			}
			answered.Add(1)
		}, message(topic, i)))
	}
	until(func() bool { return answered.Load() == 100 }, wait, "100 answers")
	require(failed.Load() == 0, failed.Load())
	received := listen(topic, "g"+topic, "*")
	received.await(100)
	received.exactly(100)
}

func sendOneway() {
	topic, sender := named("oneway"), newProducer()
	send(sender, message(topic, 0))
	for i := 1; i < 20; i++ {
		done(sender.SendOneWay(context.Background(), message(topic, i)))
	}
	received := listen(topic, "g"+topic, "*")
	received.await(20)
	received.exactly(20)
}

func sendBatch() {
	topic, sender := named("batch"), newProducer()
	send(sender, primitive.NewMessage(topic, []byte("first")).WithTag("first"))
	var many []*primitive.Message
	for i := 0; i < 20; i++ {
		one := message(topic, i).WithTag("t").WithKeys([]string{"key" + strconv.Itoa(i)})
		one.WithProperty("number", strconv.Itoa(i))
		many = append(many, one)
	}
	result := send(sender, many...)
	require(len(strings.Split(result.OffsetMsgID, ",")) == 20, result)
	received := listen(topic, "g"+topic, "t")
	received.await(20)
	received.exactly(20)
	queues := map[int]bool{}
	for _, one := range received.all() {
		about := string(one.Body)[1:]
		require(one.GetKeys() == "key"+about && one.GetProperty("number") == about, one)
		queues[one.Queue.QueueId] = true
	}
	require(len(queues) == 1, queues)
	require(len(received.ids()) == 20, received.ids()) // the client names none in its answer
}

func fields() {
	topic, sender := named("fields"), newProducer()
	one := primitive.NewMessage(topic, []byte("body ä水")).WithTag("paid").WithKeys([]string{"a", "b"})
	one.Flag = 7
	one.WithProperty("name", "水 = ä")
	began := time.Now()
	result := send(sender, one)
	received := listen(topic, "g"+topic, "*")
	received.await(1)
	got := received.all()[0]
	require(string(got.Body) == "body ä水" && got.GetTags() == "paid" && got.Flag == 7, got)
	require(strings.TrimSpace(got.GetKeys()) == "a b" && got.GetProperty("name") == "水 = ä", got)
	require(got.MsgId == result.MsgID && got.OffsetMsgId == result.OffsetMsgID, got)
	require(got.QueueOffset == result.QueueOffset && got.Queue.QueueId == result.MessageQueue.QueueId, got)
	require(time.UnixMilli(got.BornTimestamp).Sub(began).Abs() < time.Minute, got.BornTimestamp)
}

func compressed() {
	topic, sender := named("large"), newProducer()
	text, noise := bytes.Repeat([]byte("x"), 300<<10), make([]byte, 4<<20-64<<10)
	rand.New(rand.NewSource(1)).Read(noise)
	send(sender, primitive.NewMessage(topic, text))
	send(sender, primitive.NewMessage(topic, noise))
	received := listen(topic, "g"+topic, "*")
	received.await(2)
	for _, one := range received.all() {
		require(bytes.Equal(one.Body, text) || bytes.Equal(one.Body, noise), len(one.Body))
	}
}

func tooBig() {
	noise := make([]byte, 4<<20+64<<10)
	rand.New(rand.NewSource(1)).Read(noise)
	_, err := newProducer().SendSync(context.Background(), primitive.NewMessage(named("big"), noise))
	require(err != nil, "it was taken")
}

func noTopic() {
	topic, sender := named("unknown"), newProducer()
	began := time.Now()
	send(sender, message(topic, 0))
	require(time.Since(began) < busy*5*time.Second, time.Since(began))
}

// --- consumers ---

func push() {
	topic, sender := named("push"), newProducer()
	for i := 0; i < 200; i++ {
		send(sender, message(topic, i))
	}
	received := &seen{}
	first := started(topic, "g"+topic, tags("*"), received.take)
	received.await(200)
	received.exactly(200)
	time.Sleep(6 * time.Second) // it sends its offsets every 5 s
	done(first.Shutdown())
	again := listen(topic, "g"+topic, "*")
	time.Sleep(4 * time.Second)
	require(len(again.all()) == 0, again.bodies())
}

func pushOrderly() {
	topic := named("orderly")
	sender := newProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	for i := 0; i < 10; i++ {
		for key := 0; key < 4; key++ {
			one := primitive.NewMessage(topic, []byte(fmt.Sprintf("%d-%d", key, i)))
			send(sender, one.WithShardingKey(strconv.Itoa(key)))
		}
	}
	var lock sync.Mutex
	order, busy, together, suspended, count := map[int][]string{}, map[int]bool{}, false, false, 0
	started(topic, "g"+topic, tags("*"), func(_ context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		queue := given[0].Queue.QueueId
		lock.Lock()
		defer lock.Unlock()
		together = together || busy[queue]
		busy[queue] = true
		defer func() { busy[queue] = false }()
		for _, one := range given {
			if string(one.Body) == "2-3" && !suspended {
				suspended = true
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			order[queue] = append(order[queue], string(one.Body))
			count++
		}
		return ok, nil
	}, consumer.WithConsumerOrder(true))
	until(func() bool { lock.Lock(); defer lock.Unlock(); return count >= 40 }, wait, "40 messages")
	require(!together && suspended, "two at once in one queue")
	for _, bodies := range order {
		last := map[string]int{}
		for _, body := range bodies {
			key, at, _ := strings.Cut(body, "-")
			place, _ := strconv.Atoi(at)
			require(place == last[key], bodies)
			last[key]++
		}
	}
}

func broadcast() {
	topic, sender := named("broadcast"), newProducer()
	send(sender, primitive.NewMessage(topic, []byte("before")))
	var both [2]*seen
	for i := range both {
		both[i] = &seen{}
		started(topic, "g"+topic, tags("*"), both[i].take, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	for _, one := range both {
		one.await(1)
	}
	for i := 0; i < 20; i++ {
		send(sender, message(topic, i))
	}
	for _, one := range both {
		one.await(21)
	}
}

func tagFilter() {
	topic, sender := named("tags"), newProducer()
	for _, tag := range strings.Fields("A B C D A BB Aa") {
		send(sender, primitive.NewMessage(topic, []byte(tag)).WithTag(tag))
	}
	received := listen(topic, "g"+topic, "A || B")
	received.await(3)
	time.Sleep(2 * time.Second)
	require(fmt.Sprint(received.bodies()) == "[A A B]", received.bodies())
}

func sqlFilter() {
	topic, sender := named("sql"), newProducer()
	for _, each := range [][2]string{{"6", "x"}, {"5", "x"}, {"7", "y"}, {"", "x"}, {"10", "x"}} {
		one := primitive.NewMessage(topic, []byte(each[0]+each[1]))
		if each[0] != "" {
			one.WithProperty("a", each[0])
		}
		one.WithProperty("b", each[1])
		send(sender, one)
	}
	received := &seen{}
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "a > 5 AND b = 'x'"}
	started(topic, "g"+topic, selector, received.take)
	received.await(2)
	time.Sleep(2 * time.Second)
	require(fmt.Sprint(received.bodies()) == "[10x 6x]", received.bodies())
}

func longPoll() {
	topic, sender := named("poll"), newProducer()
	send(sender, message(topic, 0))
	received := listen(topic, "g"+topic, "*")
	received.await(1)
	fast := 0
	for i := 1; i <= 10; i++ {
		began := time.Now()
		send(sender, message(topic, i))
		received.await(i + 1)
		if time.Since(began) < 500*time.Millisecond {
			fast++
		}
	}
	require(fast >= 9, fast)
}

func pull() {
	topic, sender := named("pull"), newProducer()
	var queue *primitive.MessageQueue
	for i := 0; i < 40; i++ {
		queue = send(sender, message(topic, i)).MessageQueue
	}
	puller, err := rocketmq.NewPullConsumer(
		consumer.WithGroupName("g"+topic), consumer.WithNameServer(primitive.NamesrvAddr{address}), consumer.WithInstance(unique()))
	done(err)
	done(puller.Subscribe(topic, tags("*")))
	done(puller.Start())
	closing = append(closing, func() { _ = puller.Shutdown() })
	until(func() bool {
		result, err := puller.PullFrom(context.Background(), queue, 0, 32)
		return err == nil && result.Status == primitive.PullFound && result.MaxOffset == 10
	}, wait, "10 messages")
	result, err := puller.PullFrom(context.Background(), queue, 3, 5)
	done(err)
	require(len(result.GetMessageExts()) == 5 && result.NextBeginOffset == 8, result)
	result, err = puller.PullFrom(context.Background(), queue, 1000, 5)
	done(err)
	require(result.Status == primitive.PullOffsetIllegal && result.NextBeginOffset == 10, result)
}

func rebalance() {
	topic, sender := named("rebalance"), newProducer()
	send(sender, message(topic, 0))
	received, ofSecond := &seen{}, &seen{}
	started(topic, "g"+topic, tags("*"), received.take)
	received.await(1)
	second := started(topic, "g"+topic, tags("*"), ofSecond.take)
	sent := 1
	both := func() []string { return append(received.bodies(), ofSecond.bodies()...) }
	until(func() bool {
		send(sender, message(topic, sent))
		sent++
		return len(ofSecond.all()) > 5
	}, wait, "the second one's messages")
	done(second.Shutdown())
	for i := 0; i < 100; i++ {
		send(sender, message(topic, sent))
		sent++
	}
	until(func() bool { return len(set(both())) == sent }, wait, "all messages")
}

func quickStart() {
	sender, fast := newProducer(), 0
	for turn := 0; turn < 5; turn++ {
		topic := named("quick" + strconv.Itoa(turn))
		send(sender, message(topic, 0))
		began := time.Now()
		listen(topic, "g"+topic, "*").await(1)
		if time.Since(began) < busy*5*time.Second {
			fast++
		}
	}
	require(fast >= 4, fast)
}

func retryNew() {
	topic, sender := named("retry"), newProducer()
	result := send(sender, message(topic, 0))
	var lock sync.Mutex
	var attempts []int32
	ids := map[string]bool{}
	started(topic, "g"+topic, tags("*"), func(about context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		attempts = append(attempts, given[0].ReconsumeTimes)
		ids[given[0].MsgId] = true
		if context, known := primitive.GetConcurrentlyCtx(about); known {
			context.DelayLevelWhenNextConsume = 1
		}
		if given[0].ReconsumeTimes < 2 {
			return consumer.ConsumeRetryLater, nil
		}
		return ok, nil
	})
	until(func() bool { lock.Lock(); defer lock.Unlock(); return len(attempts) >= 3 }, 2*wait, "3 attempts")
	require(fmt.Sprint(attempts) == "[0 1 2]" && len(ids) == 1 && ids[result.MsgID], attempts)
}

func deadLetter() {
	topic, sender := named("dead"), newProducer()
	result := send(sender, message(topic, 0))
	var attempts atomic.Int32
	started(topic, "g"+topic, tags("*"), func(about context.Context, _ ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		attempts.Add(1)
		if context, known := primitive.GetConcurrentlyCtx(about); known {
			context.DelayLevelWhenNextConsume = 1
		}
		return consumer.ConsumeRetryLater, nil
	}, consumer.WithMaxReconsumeTimes(1))
	until(func() bool { return attempts.Load() >= 2 }, 2*wait, "2 attempts")
	var buried *seen
	until(func() (made bool) {
		defer func() { made = recover() == nil }() // the topic is made with the dead letter
		buried = listen("%DLQ%g"+topic, "r"+topic, "*")
		return true
	}, wait, "the topic of dead letters")
	until(func() bool { return len(buried.all()) >= 1 }, 2*wait, "a dead letter")
	require(buried.ids()[0] == result.MsgID && attempts.Load() == 2, buried.ids())
}

// --- later, transactions ---

func delayLevel() {
	late("delay", func(one *primitive.Message) time.Time {
		one.WithDelayTimeLevel(2)
		return time.Now().Add(5 * time.Second)
	})
}

func timer() {
	late("timer", func(one *primitive.Message) time.Time {
		due := time.Now().Add(4 * time.Second)
		one.WithProperty("TIMER_DELIVER_MS", strconv.FormatInt(due.UnixMilli(), 10))
		return due
	})
}

func late(name string, delay func(*primitive.Message) time.Time) {
	topic, sender := named(name), newProducer()
	send(sender, message(topic, 0))
	received := listen(topic, "g"+topic, "*")
	received.await(1)
	one := message(topic, 1)
	due := delay(one)
	send(sender, one)
	received.await(2)
	after := time.Since(due)
	require(after >= -200*time.Millisecond && after < busy*time.Second, after)
}

type asked struct {
	first, checked primitive.LocalTransactionState
	checks         atomic.Int32
}

func (one *asked) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return one.first
}

func (one *asked) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	if one.checks.Add(1) < 2 {
		return primitive.UnknowState
	}
	return one.checked
}

func txCommit() {
	transaction("commit", primitive.CommitMessageState, primitive.RollbackMessageState, 1, 0)
}

func txRollback() {
	transaction("rollback", primitive.RollbackMessageState, primitive.CommitMessageState, 0, 0)
}

func txCheck() {
	transaction("check", primitive.UnknowState, primitive.CommitMessageState, 1, 2)
}

func transaction(name string, first, checked primitive.LocalTransactionState, delivered int, checks int32) {
	topic, one := named(name), &asked{first: first, checked: checked}
	send(newProducer(), primitive.NewMessage(topic, []byte("first")).WithTag("warm"))
	sender, err := rocketmq.NewTransactionProducer(one, options("tx"+topic)...)
	done(err)
	done(sender.Start())
	closing = append(closing, func() { _ = sender.Shutdown() })
	received := listen(topic, "g"+topic, "tx")
	_, err = sender.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte("m")).WithTag("tx"))
	done(err)
	received.await(delivered)
	time.Sleep(8 * time.Second) // a check would come
	require(len(received.all()) == delivered && one.checks.Load() == checks, one.checks.Load())
}

// --- parts ---

type seen struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
}

func (one *seen) take(_ context.Context, given ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	one.lock.Lock()
	defer one.lock.Unlock()
	one.messages = append(one.messages, given...)
	return ok, nil
}

func (one *seen) all() []*primitive.MessageExt {
	one.lock.Lock()
	defer one.lock.Unlock()
	return append([]*primitive.MessageExt{}, one.messages...)
}

func (one *seen) bodies() []string {
	found := []string{}
	for _, each := range one.all() {
		found = append(found, string(each.Body))
	}
	sort.Strings(found)
	return found
}

func (one *seen) ids() []string {
	found := map[string]bool{}
	for _, each := range one.all() {
		found[each.MsgId] = true
	}
	return sorted(found)
}

func (one *seen) await(count int) {
	until(func() bool { return len(one.all()) >= count }, wait, fmt.Sprintf("%d messages", count))
}

// Each of m0 to m(count-1) once.
func (one *seen) exactly(count int) {
	require(len(one.all()) == count && len(set(one.bodies())) == count, one.bodies())
}

func named(name string) string { return name + "-" + salt }

func unique() string {
	number++
	return salt + strconv.Itoa(number)
}

func message(topic string, i int) *primitive.Message {
	return primitive.NewMessage(topic, []byte("m"+strconv.Itoa(i)))
}

func options(group string) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{address}), producer.WithGroupName(group), producer.WithInstanceName(unique()),
		producer.WithSendMsgTimeout(10 * time.Second),
	}
}

func newProducer(more ...producer.Option) rocketmq.Producer {
	made, err := rocketmq.NewProducer(append(options("p"+unique()), more...)...)
	done(err)
	done(made.Start())
	closing = append(closing, func() { _ = made.Shutdown() })
	return made
}

func send(sender rocketmq.Producer, many ...*primitive.Message) *primitive.SendResult {
	result, err := sender.SendSync(context.Background(), many...)
	done(err)
	return result
}

func tags(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

func listen(topic, group, expression string) *seen {
	received := &seen{}
	started(topic, group, tags(expression), received.take)
	return received
}

func started(
	topic, group string, selector consumer.MessageSelector,
	listener func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error), more ...consumer.Option,
) rocketmq.PushConsumer {
	given := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{address}), consumer.WithGroupName(group), consumer.WithInstance(unique()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	made, err := rocketmq.NewPushConsumer(append(given, more...)...)
	done(err)
	done(made.Subscribe(topic, selector, listener))
	done(made.Start())
	var once sync.Once
	closing = append(closing, func() { once.Do(func() { _ = made.Shutdown() }) })
	return made
}

func set(names []string) map[string]bool {
	found := map[string]bool{}
	for _, one := range names {
		found[one] = true
	}
	return found
}

func sorted(names map[string]bool) []string {
	found := []string{}
	for one := range names {
		found = append(found, one)
	}
	sort.Strings(found)
	return found
}

func until(holds func() bool, limit time.Duration, what string) {
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		require(time.Since(began) < limit, "not within "+limit.String()+": "+what)
	}
}

func require(holds bool, what any) {
	if !holds {
		panic(what)
	}
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}
