// Package isolane lets a gRPC client keep latency objectives in an overloaded network (Aequitas).
//
// Problem: a weighted fair network keeps the delay of a class only while its share of the traffic stays small, and no client
// sees the others' traffic.
// Method: for each destination and class the client keeps an admit probability. A call is admitted with it; otherwise it
// runs in the lowest class, and outgoing metadata, response metadata and [Outcome] report this. Calls that miss the
// class's objective lower the probability, calls that meet it raise it, at most once in a window. Nothing is dropped or
// delayed. Each class has its own connection, whose packets carry the class's code point (DSCP).
// Units: time.Duration at the borders; the algorithm counts picoseconds and parts of 2^32, and decides bit for bit as the
// Rust library does (testdata/admission.json holds both to it).
// Limits: the client's side only; a latency is the time from passing a call to its connection to its end, less the duration
// that the server reports for its method ([UnaryServerInterceptor]). A server without that report must be fast, or the
// objective must include its time.
//
// A program dials once and uses the result wherever a *grpc.ClientConn goes:
//
//	admission, err := isolane.New(isolane.Config{Classes: []isolane.Class{
//		{Name: "high", DSCP: 46, TargetPerMTU: 15 * time.Microsecond},
//		{Name: "medium", DSCP: 26, TargetPerMTU: 25 * time.Microsecond},
//		{Name: "low", DSCP: 10},
//	}})
//	conn, err := isolane.Dial(admission, "storage:443", grpc.WithTransportCredentials(creds))
//	client := pb.NewStorageClient(conn)
//	client.Write(isolane.WithClass(ctx, 0), request)
//
// Source: Aequitas (in the thesis "cloud QoS"), section 3.5, algorithm 2.
package isolane
