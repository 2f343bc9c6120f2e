// Command isolane-rpc-lab is the Go client and server of `isolane rpc lab`.
//
// It reads one JSON document a line on stdin and answers on stdout; crates/rpc/demo/src/job.rs describes them. Calls are issued
// when they are due, whether earlier ones were answered or not. Times are microseconds after the start.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

const (
	method    = "/isolane.lab.Lab/Write"
	lineBytes = 1 << 20
)

type classJob struct {
	TargetPerMTUUs  float64 `json:"target_per_mtu_us"`
	Percentile      float64 `json:"percentile"`
	Increment       float64 `json:"increment"`
	DecrementPerMTU float64 `json:"decrement_per_mtu"`
	Floor           float64 `json:"floor"`
}

type admissionJob struct {
	Shadow   bool       `json:"shadow"`
	MTUBytes int        `json:"mtu_bytes"`
	Classes  []classJob `json:"classes"`
}

type clientJob struct {
	Server         string        `json:"server"`
	CallBytes      int           `json:"call_bytes"`
	PeriodUs       uint64        `json:"period_us"`
	BurstUs        uint64        `json:"burst_us"`
	BurstCallsPerS float64       `json:"burst_calls_per_s"`
	Mix            []float64     `json:"mix"`
	DSCP           []int         `json:"dscp"`
	IssueUs        uint64        `json:"issue_us"`
	DrainUs        uint64        `json:"drain_us"`
	Seed           uint64        `json:"seed"`
	Admission      *admissionJob `json:"admission"`
}

type serverJob struct {
	Listen string `json:"listen"`
}

type startJob struct {
	StartUnixUs int64 `json:"start_unix_us"`
}

type clientResult struct {
	Issued      uint64      `json:"issued"`
	Failed      uint64      `json:"failed"`
	Unanswered  uint64      `json:"unanswered"`
	FirstError  *string     `json:"first_error"`
	LateUsMax   uint64      `json:"late_us_max"`
	Probability []float64   `json:"probability"`
	Calls       [][5]uint64 `json:"calls"`
}

type serverResult struct {
	Calls      uint64 `json:"calls"`
	Bytes      uint64 `json:"bytes"`
	Downgraded uint64 `json:"downgraded"`
}

// lines reads the controller's documents.
type lines struct{ scanner *bufio.Scanner }

func stdin() lines {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, lineBytes)
	return lines{scanner}
}

// read reads the next document.
func (l lines) read(into any) error {
	if !l.scanner.Scan() {
		return fmt.Errorf("stdin ended before a document (%v)", l.scanner.Err())
	}
	return json.Unmarshal(l.scanner.Bytes(), into)
}

// end returns when stdin ends: the controller is done or has ended.
func (l lines) end() {
	for l.scanner.Scan() {
	}
}

func write(document any) error { return json.NewEncoder(os.Stdout).Encode(document) }

func ready() error { return write(map[string]bool{"ready": true}) }

func main() {
	role := ""
	if len(os.Args) == 2 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case "client":
		err = client(stdin())
	case "server":
		err = server(stdin())
	case "version":
		fmt.Println("isolane-rpc-lab 1")
	default:
		fmt.Fprintln(os.Stderr, "usage: isolane-rpc-lab client|server|version; isolane rpc lab starts it")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolane-rpc-lab:", err)
		os.Exit(3)
	}
}
