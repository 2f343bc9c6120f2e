package main

import (
	"net"
	"sync/atomic"

	"isolane.dev/isolane/go/isolane"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// server answers every call with an empty message until stdin ends.
func server(in lines) error {
	var job serverJob
	if err := in.read(&job); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", job.Listen)
	if err != nil {
		return err
	}
	var calls, bytes, downgraded atomic.Uint64
	write1 := func(_ any, stream grpc.ServerStream) error {
		// Any other method only opens the client's connection.
		if called, _ := grpc.MethodFromServerStream(stream); called != method {
			return status.Errorf(codes.Unimplemented, "no method %s", called)
		}
		var payload []byte
		if err := stream.RecvMsg(&payload); err != nil {
			return err
		}
		calls.Add(1)
		bytes.Add(uint64(len(payload)))
		if _, down := isolane.DowngradedFrom(stream.Context()); down {
			downgraded.Add(1)
		}
		return stream.SendMsg(&[]byte{})
	}
	const window = 4 << 20
	serve := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(write1),
		grpc.InitialConnWindowSize(window), grpc.InitialWindowSize(window))
	go func() {
		in.end()
		serve.Stop()
	}()
	if err := ready(); err != nil {
		return err
	}
	if err := serve.Serve(listener); err != nil {
		return err
	}
	return write(serverResult{calls.Load(), bytes.Load(), downgraded.Load()})
}
