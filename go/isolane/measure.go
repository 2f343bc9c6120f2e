package isolane

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Measures calls.
//
// Problem: the latency of a call that ends by its deadline is unknown, and a retry hides the slow attempt. Method: gRPC
// reports each attempt of a call to a stats.Handler, with the sizes of its messages. An attempt begins when the load
// balancer has chosen its connection, and ends with its status. An attempt that the server answered is measured. For an
// attempt that ended by its deadline, by cancellation or with its connection, the elapsed time is a lower bound. The
// server's own time is subtracted. Limits: streams are decided on and not measured, because their time is the
// application's. An attempt that the server itself failed is not measured, because it may have failed before the
// request had arrived.

type callKey struct{}
type attemptKey struct{}

// call is one call of an application, shared by its attempts.
type call struct {
	conn  *Conn
	asked int
	bytes int
	unary bool

	mutex   sync.Mutex
	verdict Verdict
	// decided is true if verdict is valid: the gate sets it in the pick or, without a gate, begin does.
	decided bool
	// downgrade is true if the gate sent the call away from the requested class.
	downgrade bool
	// ungated is true if an attempt was sent without passing a gate.
	ungated bool
	backend string
	latency time.Duration
}

// attempt is one attempt of a call on one connection.
type attempt struct {
	call *call

	// deadline of the call, zero for none.
	deadline time.Time

	mutex    sync.Mutex
	verdict  Verdict
	begin    time.Time
	server   time.Duration
	sent     int
	received int
	answered bool
}

// admit decides on the call in the pick, with the backend as its destination. False means that the call leaves its
// class. A retry keeps the class of its call.
func (t *attempt) admit(backend string) bool {
	c := t.call
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.decided {
		c.decided = true
		c.verdict = c.conn.admission.Decide(backend, c.asked, c.bytes)
		if c.verdict.Downgraded {
			c.downgrade = true
			return false
		}
	}
	verdict := c.verdict
	if verdict.at != nil && !verdict.Downgraded {
		// A later attempt may go to another backend than the decision's; that backend learns from it.
		verdict.at = c.conn.admission.destination(backend, c.conn.admission.config.Load())
	}
	c.backend = backend
	t.mutex.Lock()
	t.verdict, t.begin = verdict, time.Now()
	t.mutex.Unlock()
	return true
}

// watcher is the stats.Handler of all connections of a Conn.
type watcher struct{}

func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watcher) HandleConn(context.Context, stats.ConnStats)                       {}

func (watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return ctx
	}
	tried := &attempt{call: c, begin: time.Now()}
	tried.deadline, _ = ctx.Deadline()
	c.mutex.Lock()
	if c.decided {
		tried.verdict = c.verdict
	}
	c.mutex.Unlock()
	return context.WithValue(ctx, attemptKey{}, tried)
}

func (watcher) HandleRPC(ctx context.Context, event stats.RPCStats) {
	tried, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.OutHeader:
		tried.sentTo(event)
	case *stats.OutPayload:
		tried.change(func() { tried.sent += event.CompressedLength })
	case *stats.InPayload:
		tried.change(func() { tried.received += event.CompressedLength })
	case *stats.InHeader:
		tried.change(func() { tried.server = serverTime(event.Header) })
	case *stats.InTrailer:
		tried.change(func() {
			tried.answered = true
			tried.server = max(tried.server, serverTime(event.Trailer))
		})
	case *stats.End:
		tried.end(event.Error, event.EndTime)
	}
}

func (t *attempt) change(what func()) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	what()
}

func (t *attempt) sentTo(header *stats.OutHeader) {
	c := t.call
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.decided {
		c.ungated = true
	}
	if c.backend == "" && header.RemoteAddr != nil {
		c.backend = header.RemoteAddr.String()
	}
}

// end measures the attempt.
func (t *attempt) end(err error, at time.Time) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	latency := max(at.Sub(t.begin)-t.server, 0)
	t.call.mutex.Lock()
	t.call.latency = latency
	t.call.mutex.Unlock()
	if !t.call.unary {
		return
	}
	admission := t.call.conn.admission
	mtus := t.verdict.mtus
	if t.sent > 0 {
		mtus = mtusOf(t.sent, admission.config.Load().MTUBytes)
	}
	mtus = withResponse(mtus, t.received, admission.config.Load().MTUBytes)
	switch ending(err, t.answered, t.due(at)) {
	case measured:
		admission.learn(t.verdict, latency, mtus)
	case lowerBound:
		admission.giveUp(t.verdict, latency, mtus)
	}
}

// due returns whether the deadline of the call has passed. Servers count from the arrival of the call and in coarse
// units, so up to a tenth of the time may be left.
func (t *attempt) due(at time.Time) bool {
	return !t.deadline.IsZero() && t.deadline.Sub(at) < t.deadline.Sub(t.begin)/10
}

// endings classifies what the end of an attempt says about its latency.
type endings int

const (
	// unknown: the latency is unknown.
	unknown endings = iota
	// measured: the latency is the elapsed time.
	measured
	// lowerBound: the latency is at least the elapsed time.
	lowerBound
)

// ending classifies a status. answered: the server sent it; due: the deadline of the call has passed.
func ending(err error, answered, due bool) endings {
	switch status.Code(err) {
	case codes.OK:
		return measured
	// A server enforces the deadline too, and may report it first. A server's own deadline elsewhere says nothing about
	// ours.
	case codes.DeadlineExceeded:
		if !answered || due {
			return lowerBound
		}
	case codes.Canceled, codes.Unavailable:
		if !answered {
			return lowerBound
		}
	}
	return unknown
}

// serverTime returns the server's own time from its metadata.
func serverTime(md metadata.MD) time.Duration {
	values := md.Get(ServerTimeKey)
	if len(values) == 0 {
		return 0
	}
	us, err := strconv.ParseInt(values[0], 10, 64)
	if err == nil && us >= 0 && us <= int64(math.MaxInt64/time.Microsecond) {
		return time.Duration(us) * time.Microsecond
	}
	return 0
}
