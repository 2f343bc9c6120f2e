package isolane

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

const (
	// DowngradedKey is the request metadata of a downgraded call; its value is the requested class.
	DowngradedKey = "isolane-downgraded"
	// RequestedClassKey and ClassKey are request metadata of every call: the names of the requested class and of the class
	// it runs in.
	RequestedClassKey = "isolane-requested-class"
	ClassKey          = "isolane-class"
	// ServerTimeKey is the response metadata in which [UnaryServerInterceptor] reports the duration of the method, in
	// microseconds; some servers report it in the trailer.
	ServerTimeKey = "isolane-server-us"
)

type classKey struct{}
type outcomeKey struct{}

// WithClass returns a context whose calls request a class; 0 is the highest. Without it calls request the lowest.
func WithClass(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// WithClassName returns a context whose calls request the class with this name. An unknown name means the lowest class;
// [Admission.HasClass] checks a name.
func WithClassName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, classKey{}, name)
}

// Outcome is the result of admission for one call.
type Outcome struct {
	// Asked and Ran are classes; 0 is the highest.
	Asked, Ran int
	// Downgraded is true if the call ran in a lower class than requested; WouldDowngrade, if it would outside shadow mode.
	Downgraded, WouldDowngrade bool
	// Latency of the last attempt: from passing it to its connection to its end, less the server's own time.
	Latency time.Duration
	// Backend is the address of the last attempt's server; "" before the first attempt.
	Backend string
}

// WithOutcome returns a context whose next call fills in the outcome at its end. A stream fills in the classes when it
// begins, and the latency when it ends.
func WithOutcome(ctx context.Context, outcome *Outcome) context.Context {
	return context.WithValue(ctx, outcomeKey{}, outcome)
}

// Conn has one connection per class to one target; use it wherever a *grpc.ClientConn goes.
type Conn struct {
	admission *Admission
	target    string
	conns     []*grpc.ClientConn
	gate      atomic.Int32
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial makes a Conn: per class a grpc.ClientConn with these options, whose packets carry the class's code point. Calls
// are admitted at the backend that the load balancer chooses; pass your own service config through [Balanced].
func Dial(admission *Admission, target string, opts ...grpc.DialOption) (*Conn, error) {
	conn := &Conn{admission: admission, target: target}
	policy, err := Balanced("")
	if err != nil {
		return nil, err
	}
	for _, class := range admission.Config().Classes {
		marked := append([]grpc.DialOption{
			grpc.WithContextDialer(Dialer(class.DSCP)), grpc.WithStatsHandler(watcher{}), policy,
		}, opts...)
		one, err := grpc.NewClient(target, marked...)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conn.conns = append(conn.conns, one)
	}
	return conn, nil
}

// Connect connects all classes now, instead of at their first calls.
func (c *Conn) Connect() {
	for _, conn := range c.conns {
		conn.Connect()
	}
}

// Class returns the connection of one class, for callers with their own decisions.
func (c *Conn) Class(class int) *grpc.ClientConn { return c.conns[class] }

// Close closes the connections of all classes.
func (c *Conn) Close() error {
	var all []error
	for _, conn := range c.conns {
		all = append(all, conn.Close())
	}
	return errors.Join(all...)
}

// Dialer connects by TCP with a code point on every packet, including the first.
func Dialer(dscp int) func(context.Context, string) (net.Conn, error) {
	dialer := net.Dialer{Control: func(network, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = mark(int(fd), network, dscp) })
		return errors.Join(err, failed)
	}}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	}
}

// Invoke runs a unary call in the class of its decision.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.unary(ctx, method, args, reply, invoke, opts)
}

func invoke(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	return cc.Invoke(ctx, method, req, reply, opts...)
}

// NewStream begins a stream in the class of its decision. Streams are not learned from: their time is the
// application's.
func (c *Conn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.stream(ctx, desc, method, func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return cc.NewStream(ctx, desc, method, opts...)
	}, opts)
}

// UnaryClientInterceptor runs the calls of a plain grpc.ClientConn over this Conn's classes, for programs that cannot
// replace their connection. The plain connection then carries no calls.
func (c *Conn) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return c.unary(ctx, method, req, reply, next, opts)
	}
}

// StreamClientInterceptor does for streams what [Conn.UnaryClientInterceptor] does for unary calls.
func (c *Conn) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return c.stream(ctx, desc, method, next, opts)
	}
}

func (c *Conn) unary(
	ctx context.Context, method string, req, reply any, next grpc.UnaryInvoker, opts []grpc.CallOption,
) error {
	call := c.begin(ctx, size(req), true)
	err := next(c.sent(ctx, call), method, req, reply, c.conns[call.class()], opts...)
	if call.rerouted() {
		err = next(c.sent(ctx, call), method, req, reply, c.conns[call.class()], opts...)
	}
	c.learnGate(call)
	c.report(ctx, call, call.took())
	return err
}

func (c *Conn) stream(
	ctx context.Context, desc *grpc.StreamDesc, method string, next grpc.Streamer, opts []grpc.CallOption,
) (grpc.ClientStream, error) {
	call := c.begin(ctx, 0, false)
	begin := time.Now()
	stream, err := next(c.sent(ctx, call), desc, c.conns[call.class()], method, opts...)
	if call.rerouted() {
		stream, err = next(c.sent(ctx, call), desc, c.conns[call.class()], method, opts...)
	}
	c.learnGate(call)
	if err != nil {
		c.report(ctx, call, 0)
		return nil, err
	}
	if outcome, ok := ctx.Value(outcomeKey{}).(*Outcome); ok {
		*outcome = call.outcome(0)
	}
	return &watched{ClientStream: stream, desc: desc, end: func() { c.report(ctx, call, time.Since(begin)) }}, nil
}

// Whether the load balancing policy of a Conn's connections is [BackendPolicy].
const (
	gateUnknown = iota
	gatePresent
	gateAbsent
)

// begin prepares a call. Without a gate it decides here, with the target as the destination.
func (c *Conn) begin(ctx context.Context, bytes int, unary bool) *call {
	lowest := len(c.conns) - 1
	asked := lowest
	switch class := ctx.Value(classKey{}).(type) {
	case int:
		asked = class
	case string:
		asked = c.admission.class(class)
	}
	if asked < 0 || asked > lowest {
		asked = lowest
	}
	call := &call{conn: c, asked: asked, bytes: bytes, unary: unary}
	if c.gate.Load() == gateAbsent {
		call.verdict, call.decided = c.admission.Decide(c.target, asked, bytes), true
	}
	return call
}

// learnGate records whether the first sent call passed a gate.
func (c *Conn) learnGate(call *call) {
	if c.gate.Load() != gateUnknown {
		return
	}
	call.mutex.Lock()
	defer call.mutex.Unlock()
	switch {
	case call.decided:
		c.gate.Store(gatePresent)
	case call.ungated:
		c.gate.Store(gateAbsent)
	}
}

// class returns the class of the call's next attempts.
func (c *call) class() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.decided {
		return c.verdict.Class
	}
	return c.asked
}

// took returns the latency of the last attempt.
func (c *call) took() time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.latency
}

// rerouted returns true once after the gate sent the call to the lowest class.
func (c *call) rerouted() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	was := c.downgrade
	c.downgrade = false
	return was
}

// sent returns the context of the call's attempts, with metadata for the server.
func (c *Conn) sent(ctx context.Context, call *call) context.Context {
	classes := c.admission.config.Load().Classes
	class := call.class()
	ctx = metadata.AppendToOutgoingContext(ctx, RequestedClassKey, classes[call.asked].Name, ClassKey, classes[class].Name)
	if class != call.asked {
		ctx = metadata.AppendToOutgoingContext(ctx, DowngradedKey, strconv.Itoa(call.asked))
	}
	return context.WithValue(ctx, callKey{}, call)
}

// report passes the outcome of an ended call to its application and to the observer.
func (c *Conn) report(ctx context.Context, call *call, latency time.Duration) {
	observer := c.admission.observer.Load()
	outcome, wanted := ctx.Value(outcomeKey{}).(*Outcome)
	if !wanted && observer == nil {
		return
	}
	now := call.outcome(latency)
	if wanted {
		*outcome = now
	}
	if observer != nil {
		(*observer)(ctx, now)
	}
}

func (c *call) outcome(latency time.Duration) Outcome {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	outcome := Outcome{Asked: c.asked, Ran: c.asked, Backend: c.backend, Latency: latency}
	if c.decided {
		outcome.Ran, outcome.Downgraded, outcome.WouldDowngrade = c.verdict.Class, c.verdict.Downgraded, c.verdict.WouldDowngrade
	}
	return outcome
}

// watched detects the end of a stream.
type watched struct {
	grpc.ClientStream
	desc *grpc.StreamDesc
	once sync.Once
	end  func()
}

func (m *watched) RecvMsg(message any) error {
	err := m.ClientStream.RecvMsg(message)
	if err != nil || !m.desc.ServerStreams {
		m.once.Do(m.end)
	}
	return err
}

// Sized is a message that knows its encoded size; types other than protocol buffers may implement it.
type Sized interface {
	// WireSize returns the size in bytes.
	WireSize() int
}

// size returns a message's size in bytes; 0, which counts as one MTU, if it is unknown before encoding.
func size(message any) int {
	switch message := message.(type) {
	case proto.Message:
		return proto.Size(message)
	case Sized:
		return message.WireSize()
	case []byte:
		return len(message)
	case *[]byte:
		return len(*message)
	}
	return 0
}

// UnaryServerInterceptor reports the duration of the method to clients, so that they can compute the network latency.
func UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		begin := time.Now()
		reply, err := handler(ctx, req)
		us := strconv.FormatInt(time.Since(begin).Microseconds(), 10)
		// Fails only if the method has already sent its metadata, which then carries no time.
		_ = grpc.SetHeader(ctx, metadata.Pairs(ServerTimeKey, us))
		return reply, err
	}
}

// DowngradedFrom returns the class that an incoming call requested, if its client downgraded it.
func DowngradedFrom(ctx context.Context) (class int, downgraded bool) {
	values := metadata.ValueFromIncomingContext(ctx, DowngradedKey)
	if len(values) == 0 {
		return 0, false
	}
	class, err := strconv.Atoi(values[0])
	return class, err == nil
}
