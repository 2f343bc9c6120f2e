// Package isolaneenvoy admits the calls that pass an Envoy proxy: a service of Envoy's external processing (ext_proc).
//
// Problem: programs that no library reaches need admission too, and their calls pass a proxy.
// Method: Envoy opens a stream for each HTTP request and sends the headers of the request, the headers of the response and its
// trailers. The service decides at the headers of the request. It sets the metadata of the other languages, and makes Envoy
// choose the route again, so that a route on the header isolane-class leads to the cluster of the class, whose sockets have
// its DSCP (examples/envoy/envoy.yaml). The latency ends with the headers of the response, less the server's own time.
// Limits: Envoy has not chosen the backend when the service decides. The destination is what the operator writes into the
// initial metadata of the filter's grpc_service, one for all calls without it: clients of the proxy choose nothing that takes
// memory. Each call counts as one packet, because a client could write any content-length. The latency begins when the headers
// of the request are processed, and includes the time in which the client sends the rest to Envoy. So a client that sends
// slowly, or leaves late, lowers the admit probability of its destination. A large response is no miss, because the latency
// ends with its headers. Envoy does not distinguish streams from unary calls: disable the filter on the routes of streams, or the
// time of the application counts. Envoy itself retries below the filter, so attempts are measured together. Responses that
// Envoy makes have no x-envoy-upstream-service-time: do not set suppress_envoy_headers.
package isolaneenvoy

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"isolane.dev/isolane/go/isolane"
)

// Processor serves Envoy's external processing. It is safe for use by many goroutines.
type Processor struct {
	proc.UnimplementedExternalProcessorServer
	admission *isolane.Admission
}

// DestinationKey is the initial metadata of a stream that names its destination.
const DestinationKey = "isolane-destination"

// New makes a Processor. Calls request the class that the header isolane-requested-class names, otherwise the lowest.
func New(admission *isolane.Admission) *Processor { return &Processor{admission: admission} }

// Register adds the Processor to a server.
func (p *Processor) Register(server *grpc.Server) { proc.RegisterExternalProcessorServer(server, p) }

// exchange is one HTTP request and its response.
type exchange struct {
	admission   *isolane.Admission
	destination string
	verdict     isolane.Verdict
	begin       time.Time
	isCall      bool // begin and verdict are valid, and nothing was learned yet
	// took is the time until the headers of the response, server is the server's own part of it.
	took, server time.Duration
	// byProxy is true if Envoy itself made the response.
	byProxy bool
}

// Process serves one HTTP request.
func (p *Processor) Process(stream proc.ExternalProcessor_ProcessServer) error {
	x := &exchange{admission: p.admission}
	if values := metadata.ValueFromIncomingContext(stream.Context(), DestinationKey); len(values) > 0 {
		x.destination = values[0]
	}
	// A stream that ends before the end of the call: the client cancelled it, or a connection was lost.
	defer x.giveUp()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			return err
		}
		response, err := x.next(request)
		if err != nil {
			return err
		}
		// In observability mode Envoy expects no answers.
		if request.ObservabilityMode {
			continue
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// next handles one message and returns the answer.
func (x *exchange) next(request *proc.ProcessingRequest) (*proc.ProcessingResponse, error) {
	switch part := request.Request.(type) {
	case *proc.ProcessingRequest_RequestHeaders:
		return x.decide(part.RequestHeaders.GetHeaders()), nil
	case *proc.ProcessingRequest_ResponseHeaders:
		x.answered(part.ResponseHeaders.GetHeaders(), part.ResponseHeaders.GetEndOfStream())
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &proc.HeadersResponse{},
		}}, nil
	case *proc.ProcessingRequest_ResponseTrailers:
		x.ended(one(part.ResponseTrailers.GetTrailers(), "grpc-status"))
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &proc.TrailersResponse{},
		}}, nil
	case *proc.ProcessingRequest_RequestTrailers:
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestTrailers{
			RequestTrailers: &proc.TrailersResponse{},
		}}, nil
	}
	return nil, status.Error(codes.InvalidArgument,
		"isolane: set request_body_mode and response_body_mode to NONE: bodies are not needed")
}

// decide decides at the headers of the request.
func (x *exchange) decide(headers *core.HeaderMap) *proc.ProcessingResponse {
	classes := x.admission.Config().Classes
	asked := len(classes) - 1
	name := one(headers, isolane.RequestedClassKey)
	for i, class := range classes {
		if class.Name == name {
			asked = i
		}
	}
	x.verdict = x.admission.Decide(x.destination, asked, 0)
	x.begin, x.isCall = time.Now(), true
	mutation := &proc.HeaderMutation{SetHeaders: []*core.HeaderValueOption{
		set(isolane.RequestedClassKey, classes[asked].Name),
		set(isolane.ClassKey, classes[x.verdict.Class].Name),
	}}
	if x.verdict.Downgraded {
		mutation.SetHeaders = append(mutation.SetHeaders, set(isolane.DowngradedKey, strconv.Itoa(asked)))
	} else {
		mutation.RemoveHeaders = []string{isolane.DowngradedKey}
	}
	return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &proc.HeadersResponse{Response: &proc.CommonResponse{
			HeaderMutation: mutation,
			// The route depends on the class.
			ClearRouteCache: true,
		}},
	}}
}

// answered notes the headers of a response. Those of a gRPC call without messages, and of other HTTP, are its end.
func (x *exchange) answered(headers *core.HeaderMap, isEnd bool) {
	if !x.isCall {
		return
	}
	x.took = time.Since(x.begin)
	x.byProxy = one(headers, "x-envoy-upstream-service-time") == ""
	if us, err := strconv.ParseInt(one(headers, isolane.ServerTimeKey), 10, 64); err == nil && us >= 0 {
		x.server = time.Duration(min(us, int64(x.took/time.Microsecond)+1)) * time.Microsecond
	}
	if !strings.HasPrefix(one(headers, "content-type"), "application/grpc") {
		x.ended(fromHTTP(one(headers, ":status")))
	} else if isEnd {
		x.ended(one(headers, "grpc-status"))
	}
}

// fromHTTP returns the status of gRPC that means the same for admission.
func fromHTTP(status string) string {
	switch {
	case status == "504":
		return text(codes.DeadlineExceeded)
	case status == "503":
		return text(codes.Unavailable)
	case len(status) == 3 && status[0] >= '2' && status[0] <= '4':
		return text(codes.OK)
	}
	return text(codes.Unknown)
}

// ended learns from the status of a call. A success that Envoy itself answers, like a redirect, and a failure by the server say
// nothing about the network. A failure by Envoy is a deadline or a lost connection: the call lasted at least as long as it did.
func (x *exchange) ended(code string) {
	switch code {
	case text(codes.OK):
		if !x.byProxy {
			x.learn(func() { x.admission.Complete(x.verdict, max(x.took-x.server, 0)) })
		}
	case text(codes.DeadlineExceeded), text(codes.Unavailable), text(codes.Canceled):
		if x.byProxy {
			x.giveUp()
		}
	}
	x.isCall = false
}

func (x *exchange) giveUp() {
	elapsed := time.Since(x.begin)
	if x.took > 0 {
		// What follows the headers of a response is not the time of the request.
		elapsed = max(x.took-x.server, 0)
	}
	x.learn(func() { x.admission.GiveUp(x.verdict, elapsed) })
}

func (x *exchange) learn(from func()) {
	if x.isCall {
		x.isCall = false
		from()
	}
}

func text(code codes.Code) string { return strconv.Itoa(int(code)) }

// one returns the last value of a header, "" for none. Envoy sends values as text or, since 1.27, as bytes.
func one(headers *core.HeaderMap, key string) string {
	all := headers.GetHeaders()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].GetKey() != key {
			continue
		}
		if raw := all[i].GetRawValue(); len(raw) > 0 {
			return string(raw)
		}
		return all[i].GetValue()
	}
	return ""
}

// set replaces a header, so that no client can pretend a class.
func set(key, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
