package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"isolane.dev/isolane/go/isolane"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// client issues the calls of one job.
func client(in lines) error {
	var job clientJob
	if err := in.read(&job); err != nil {
		return err
	}
	admission, err := isolane.New(config(job))
	if err != nil {
		return err
	}
	conn, err := isolane.Dial(admission, "passthrough:///"+job.Server,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := connect(conn, len(job.DSCP)); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	var start startJob
	if err := in.read(&start); err != nil {
		return err
	}
	go func() {
		in.end()
		fmt.Fprintln(os.Stderr, "isolane-rpc-lab: lost its controller")
		os.Exit(3)
	}()
	return write(issue(job, admission, conn, time.UnixMicro(start.StartUnixUs)))
}

// config is the job's admission; without one, everything is only counted.
func config(job clientJob) isolane.Config {
	config := isolane.Config{Mode: isolane.Off}
	if job.Admission != nil {
		config.Mode = isolane.Enforce
		config.MTUBytes = job.Admission.MTUBytes
		if job.Admission.Shadow {
			config.Mode = isolane.Shadow
		}
	}
	lowest := len(job.DSCP) - 1
	for i, dscp := range job.DSCP {
		class := isolane.Class{Name: fmt.Sprintf("class-%d", i), DSCP: dscp}
		switch {
		case i == lowest:
		case job.Admission == nil:
			class.TargetPerMTU = time.Second
		default:
			from := job.Admission.Classes[i]
			class.TargetPerMTU = time.Duration(from.TargetPerMTUUs * float64(time.Microsecond))
			class.Percentile, class.Floor = from.Percentile, from.Floor
			class.Alpha, class.Beta = from.Increment, from.DecrementPerMTU
		}
		config.Classes = append(config.Classes, class)
	}
	return config
}

func connect(conn *isolane.Conn, classes int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn.Connect()
	for class := 0; class < classes; class++ {
		one := conn.Class(class)
		for state := one.GetState(); state != connectivity.Ready; state = one.GetState() {
			if !one.WaitForStateChange(ctx, state) {
				return fmt.Errorf("cannot reach the server: class %d is %s", class, state)
			}
		}
	}
	return nil
}

// arrivals is a Poisson stream that runs only while a burst lasts.
func arrivals(job clientJob, issue func(atUs uint64, class int)) {
	draw := rand.New(rand.NewPCG(job.Seed, 0x1501a9e))
	clock := 0.0
	for {
		clock += draw.ExpFloat64() * 1e6 / job.BurstCallsPerS
		us := uint64(clock)
		at := us/job.BurstUs*job.PeriodUs + us%job.BurstUs
		if at >= job.IssueUs {
			return
		}
		point, class := draw.Float64(), 0
		for class < len(job.Mix)-1 && point >= job.Mix[class] {
			point -= job.Mix[class]
			class++
		}
		issue(at, class)
	}
}

func issue(job clientJob, admission *isolane.Admission, conn *isolane.Conn, begin time.Time) clientResult {
	result := clientResult{Calls: [][5]uint64{}, Probability: []float64{}}
	payload := make([]byte, job.CallBytes)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mutex sync.Mutex
	var answers sync.WaitGroup
	arrivals(job, func(atUs uint64, class int) {
		due := begin.Add(time.Duration(atUs) * time.Microsecond)
		time.Sleep(time.Until(due))
		late := uint64(max(time.Since(due).Microseconds(), 0))
		mutex.Lock()
		result.Issued++
		result.LateUsMax = max(result.LateUsMax, late)
		mutex.Unlock()
		answers.Add(1)
		go func() {
			defer answers.Done()
			var outcome isolane.Outcome
			var reply []byte
			call := isolane.WithOutcome(isolane.WithClass(ctx, class), &outcome)
			err := conn.Invoke(call, method, &payload, &reply)
			mutex.Lock()
			defer mutex.Unlock()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				result.Failed++
				if text := err.Error(); result.FirstError == nil {
					result.FirstError = &text
				}
				return
			}
			downgraded := uint64(0)
			if outcome.Downgraded || outcome.WouldDowngrade {
				downgraded = 1
			}
			took := uint64(outcome.Latency.Microseconds())
			result.Calls = append(result.Calls, [5]uint64{uint64(class), uint64(outcome.Ran), downgraded, atUs + late, took})
		}()
	})
	end := begin.Add(time.Duration(job.IssueUs+job.DrainUs) * time.Microsecond)
	all := make(chan struct{})
	go func() { answers.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(time.Until(end)):
	}
	mutex.Lock()
	defer mutex.Unlock()
	cancel()
	result.Unanswered = result.Issued - result.Failed - uint64(len(result.Calls))
	for class := 0; job.Admission != nil && class < len(job.Admission.Classes); class++ {
		result.Probability = append(result.Probability, admission.Probability(job.Server, class))
	}
	return result
}
