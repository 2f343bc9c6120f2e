package isolane

import (
	"context"
	"errors"
	"math"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

const (
	// DowngradedKey is the request metadata of a downgraded call; its value is the class that was asked for.
	DowngradedKey = "isolane-downgraded"
	// RequestedClassKey and ClassKey are request metadata of every call: the names of the class that was asked for and of the
	// class it runs in.
	RequestedClassKey = "isolane-requested-class"
	ClassKey          = "isolane-class"
	// ServerTimeKey is the response metadata in which [UnaryServerInterceptor] says how long the method itself took, in
	// microseconds; some servers say so in the trailer.
	ServerTimeKey = "isolane-server-us"
)

type classKey struct{}
type outcomeKey struct{}

// WithClass returns a context whose calls ask for a class; 0 is the highest. Without it they ask for the lowest.
func WithClass(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// Outcome is what became of a call, for its application.
type Outcome struct {
	// Asked and Ran are classes; 0 is the highest.
	Asked, Ran int
	// Downgraded says that the call ran in a lower class than it asked for; WouldDowngrade, that it would outside shadow mode.
	Downgraded, WouldDowngrade bool
	// Latency is from handing the call to its connection to its end.
	Latency time.Duration
}

// WithOutcome returns a context whose next call fills in the outcome: the classes before the call runs, the latency when it
// has ended.
func WithOutcome(ctx context.Context, outcome *Outcome) context.Context {
	return context.WithValue(ctx, outcomeKey{}, outcome)
}

// Conn is one connection for each class to one target; it goes wherever a *grpc.ClientConn does.
type Conn struct {
	admission *Admission
	target    string
	conns     []*grpc.ClientConn
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial makes a Conn: for each class a grpc.ClientConn with these options, whose packets carry the class's code point.
func Dial(admission *Admission, target string, opts ...grpc.DialOption) (*Conn, error) {
	conn := &Conn{admission: admission, target: target}
	for _, class := range admission.Config().Classes {
		marked := append([]grpc.DialOption{grpc.WithContextDialer(Dialer(class.DSCP))}, opts...)
		one, err := grpc.NewClient(target, marked...)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conn.conns = append(conn.conns, one)
	}
	return conn, nil
}

// Connect begins to connect all classes, instead of at their first calls.
func (c *Conn) Connect() {
	for _, conn := range c.conns {
		conn.Connect()
	}
}

// Class is the connection of one class, for callers that decide by themselves.
func (c *Conn) Class(class int) *grpc.ClientConn { return c.conns[class] }

// Close closes the connections of all classes.
func (c *Conn) Close() error {
	var all []error
	for _, conn := range c.conns {
		all = append(all, conn.Close())
	}
	return errors.Join(all...)
}

// Dialer connects by TCP with a code point on every packet, the first included.
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

// Invoke runs a unary call in the class that admission gives it.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.unary(ctx, method, args, reply, invoke, opts)
}

func invoke(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	return cc.Invoke(ctx, method, req, reply, opts...)
}

// NewStream begins a stream in the class that admission gives it. Nothing is learned from it: its time is the application's.
func (c *Conn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.stream(ctx, desc, method, func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return cc.NewStream(ctx, desc, method, opts...)
	}, opts)
}

// UnaryClientInterceptor lets the calls of a plain grpc.ClientConn run over this Conn's classes, for programs that cannot
// replace their connection: the plain one is not used by calls any more.
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
	verdict, ctx, outcome := c.decide(ctx, size(req))
	var header, trailer metadata.MD
	opts = append(opts[:len(opts):len(opts)], grpc.Header(&header), grpc.Trailer(&trailer))
	begin := time.Now()
	err := next(ctx, method, req, reply, c.conns[verdict.Class], opts...)
	latency := max(time.Since(begin)-serverTime(header, trailer), 0)
	if outcome != nil {
		outcome.Latency = latency
	}
	// One that failed or was cancelled says nothing of the network's delay.
	if err == nil {
		c.admission.Complete(verdict, latency)
	}
	return err
}

func (c *Conn) stream(
	ctx context.Context, desc *grpc.StreamDesc, method string, next grpc.Streamer, opts []grpc.CallOption,
) (grpc.ClientStream, error) {
	verdict, ctx, outcome := c.decide(ctx, 0)
	begin := time.Now()
	stream, err := next(ctx, desc, c.conns[verdict.Class], method, opts...)
	if err != nil {
		return nil, err
	}
	return &measured{ClientStream: stream, desc: desc, end: func() {
		if outcome != nil {
			outcome.Latency = time.Since(begin)
		}
	}}, nil
}

// decide asks for the class of the context and tells server and application what became of it.
func (c *Conn) decide(ctx context.Context, bytes int) (Verdict, context.Context, *Outcome) {
	class, given := ctx.Value(classKey{}).(int)
	if !given {
		class = len(c.conns) - 1
	}
	verdict := c.admission.Decide(c.target, class, bytes)
	outcome, _ := ctx.Value(outcomeKey{}).(*Outcome)
	if outcome != nil {
		*outcome = Outcome{
			Asked: verdict.Asked, Ran: verdict.Class,
			Downgraded: verdict.Downgraded, WouldDowngrade: verdict.WouldDowngrade,
		}
	}
	classes := c.admission.config.Load().Classes
	ctx = metadata.AppendToOutgoingContext(
		ctx, RequestedClassKey, classes[verdict.Asked].Name, ClassKey, classes[verdict.Class].Name)
	if verdict.Downgraded {
		ctx = metadata.AppendToOutgoingContext(ctx, DowngradedKey, strconv.Itoa(verdict.Asked))
	}
	return verdict, ctx, outcome
}

// measured sees a stream's end.
type measured struct {
	grpc.ClientStream
	desc *grpc.StreamDesc
	once sync.Once
	end  func()
}

func (m *measured) RecvMsg(message any) error {
	err := m.ClientStream.RecvMsg(message)
	if err != nil || !m.desc.ServerStreams {
		m.once.Do(m.end)
	}
	return err
}

// Sized is a message that knows its size without being encoded; others than protocol buffers may implement it.
type Sized interface {
	// WireSize is the size in bytes.
	WireSize() int
}

// size of a message in bytes; 0 when it cannot be known without encoding it, which counts as one MTU.
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

// serverTime is what the server says of itself in one of these metadata.
func serverTime(told ...metadata.MD) time.Duration {
	for _, one := range told {
		values := one.Get(ServerTimeKey)
		if len(values) == 0 {
			continue
		}
		us, err := strconv.ParseInt(values[0], 10, 64)
		if err == nil && us >= 0 && us <= int64(math.MaxInt64/time.Microsecond) {
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}

// UnaryServerInterceptor tells clients how long the method took, so that they can judge the network alone.
func UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		begin := time.Now()
		reply, err := handler(ctx, req)
		us := strconv.FormatInt(time.Since(begin).Microseconds(), 10)
		// Fails only when the method has sent its metadata already, which then carries no time.
		_ = grpc.SetHeader(ctx, metadata.Pairs(ServerTimeKey, us))
		return reply, err
	}
}

// DowngradedFrom is the class that an incoming call asked for, if its client downgraded it.
func DowngradedFrom(ctx context.Context) (class int, downgraded bool) {
	values := metadata.ValueFromIncomingContext(ctx, DowngradedKey)
	if len(values) == 0 {
		return 0, false
	}
	class, err := strconv.Atoi(values[0])
	return class, err == nil
}
