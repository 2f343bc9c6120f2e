// Package isolaneotel puts the class of a call on its OpenTelemetry span.
//
// The span is the one of the call's context: the span of the operation that makes the call. An interceptor that makes a span for each
// call goes outside of the Conn, as for any other grpc.ClientConnInterface.
package isolaneotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"isolane.dev/isolane/go/isolane"
)

// Attributes of a span.
const (
	// Requested is the name of the requested class; Class, of the class that the call ran in.
	Requested = attribute.Key("isolane.requested_class")
	Class     = attribute.Key("isolane.class")
	// Downgraded is true if the call ran in a lower class; WouldDowngrade, if it would outside shadow mode.
	Downgraded     = attribute.Key("isolane.downgraded")
	WouldDowngrade = attribute.Key("isolane.would_downgrade")
	// LatencyUs is the network latency of the last attempt, microseconds.
	LatencyUs = attribute.Key("isolane.latency_us")
	// Backend is the address of the last attempt's server.
	Backend = attribute.Key("isolane.backend")
)

// Annotate adds the outcome of every call to the span of its context. It replaces an earlier observer.
func Annotate(admission *isolane.Admission) {
	admission.Observe(func(ctx context.Context, outcome isolane.Outcome) {
		span := trace.SpanFromContext(ctx)
		if !span.IsRecording() {
			return
		}
		classes := admission.Config().Classes
		span.SetAttributes(
			Requested.String(classes[outcome.Asked].Name),
			Class.String(classes[outcome.Ran].Name),
			Downgraded.Bool(outcome.Downgraded),
			WouldDowngrade.Bool(outcome.WouldDowngrade),
			LatencyUs.Int64(outcome.Latency.Microseconds()),
			Backend.String(outcome.Backend),
		)
	})
}
