//! A workload as perftest command lines, where perftest can express it.
//!
//! Problem: a vendor reproduces an anomaly with perftest, which every laboratory has. Method: each flow of the workload is some
//! processes of `ib_write_bw`, `ib_send_bw` or `ib_read_bw`. Each line is parsed again by the program's own reader of perftest
//! lines, which gives the workload that perftest runs; memory regions may differ from the asked ones, all else is equal.
//! Whoever prints the lines runs that workload and sees whether it shows the symptom. Limits: requests of one size and one
//! element; no control verbs; of two kinds of traffic the regions of the first are those of the workload that runs; the lines are
//! for perftest 4.5. Source: `docs/reference/perftest.md`.

use crate::space::convert::workloads;
use crate::space::{Feature, Point};
use isolane_rdma_scenario::check::DeviceLimits;
use isolane_rdma_scenario::command::perftest;
use isolane_rdma_scenario::model::{DataTraffic, Host, MemoryPlace, Traffic, Transport, Verb};

/// Port of the first process; each has one of its own.
const PORT_FIRST: u32 = 18_515;

/// A workload as perftest runs it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Perftest {
    /// The workload that the lines give.
    pub point: Point,
    pub lines: Vec<Line>,
}

/// Processes with one command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Program and options, the same at both ends.
    pub command: String,
    pub processes: u32,
    /// The end that posts: perftest's client.
    pub from: Host,
    /// The other end: perftest's server.
    pub to: Host,
    pub memory: MemoryPlace,
    pub remote_memory: MemoryPlace,
}

/// `point` as perftest lines on a device of `limits`. The error says what perftest cannot express.
pub(crate) fn of(point: &Point, limits: &DeviceLimits) -> Result<Perftest, String> {
    if point.control != 0 {
        return Err("perftest has no loop of control verbs".to_owned());
    }
    let mut near = point.clone();
    let mut lines = Vec::new();
    let all = point.parts();
    for workload in all.iter().flat_map(workloads) {
        let Traffic::Data(data) = &workload.traffic else {
            return Err("perftest has no such traffic".to_owned());
        };
        let command = command(data)?;
        let parsed = perftest(&command, limits).map_err(|error| error.to_string())?;
        let Traffic::Data(parsed) = parsed.workload.traffic else {
            return Err("perftest has no such traffic".to_owned());
        };
        check(data, &parsed)?;
        if lines.is_empty() {
            let processes = point.queue_pairs.min(crate::space::convert::PROCESSES);
            near.regions = u64::from(parsed.memory_regions) * processes;
            near.region_bytes = parsed.region_bytes.get();
        }
        // The buffers of two kinds of traffic may differ; a point has one length.
        if point.second.is_some() {
            near.region_bytes = near.region_bytes.max(parsed.region_bytes.get());
        }
        lines.push(Line {
            command,
            processes: workload.processes,
            from: workload.from,
            to: workload.to,
            memory: data.memory,
            remote_memory: data.remote_memory,
        });
    }
    Ok(Perftest { point: near, lines })
}

/// Program and options of one process.
fn command(data: &DataTraffic) -> Result<String, String> {
    let [message] = data.pattern.as_slice() else {
        return Err("perftest posts requests of one size only".to_owned());
    };
    let [size] = message.elements.as_slice() else {
        return Err("perftest posts requests of one scatter-gather element only".to_owned());
    };
    if data.receive_batch == 0 {
        return Err("perftest always posts receives".to_owned());
    }
    let program = match data.verb {
        Verb::Write => "ib_write_bw",
        Verb::Send => "ib_send_bw",
        Verb::Read => "ib_read_bw",
        _ => return Err("perftest's atomics are no workload of a hunt".to_owned()),
    };
    let transport = match data.transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
    };
    let mut words = format!(
        "{program} -c {transport} -m {} -s {size} -q {} -t {}",
        data.mtu, data.queue_pairs, data.depth
    );
    match data.post_list {
        // One completion per request, as the workload has it.
        1 => words.push_str(" -Q 1"),
        list => words.push_str(&format!(" -l {list}")),
    }
    match data.verb {
        Verb::Send => words.push_str(&format!(
            " -r {} --recv_post_list {}",
            data.receive_depth, data.receive_batch
        )),
        Verb::Read => words.push_str(&format!(" -o {}", data.max_read_atomic)),
        _ => {}
    }
    // Of the two numbers of regions that perftest has, the nearer one.
    if data.queue_pairs > 1 && data.memory_regions > data.queue_pairs.div_ceil(2) {
        words.push_str(" --mr_per_qp");
    }
    Ok(words)
}

/// Whether perftest's workload is the asked one, regions aside.
fn check(asked: &DataTraffic, parsed: &DataTraffic) -> Result<(), String> {
    let mut same = parsed.clone();
    same.memory_regions = asked.memory_regions;
    same.region_bytes = asked.region_bytes;
    same.memory = asked.memory;
    same.remote_memory = asked.remote_memory;
    same.min_rnr_timer = asked.min_rnr_timer;
    if asked.verb != Verb::Send {
        same.receive_depth = asked.receive_depth;
        same.receive_batch = asked.receive_batch;
    }
    if asked.verb != Verb::Read {
        same.max_read_atomic = asked.max_read_atomic;
    }
    match same == *asked {
        true => Ok(()),
        false => Err("perftest runs another workload with these options".to_owned()),
    }
}

impl Perftest {
    /// What differs from `asked`, in words.
    pub(crate) fn differences(&self, asked: &Point) -> Vec<String> {
        let features = [Feature::Regions, Feature::RegionBytes].into_iter();
        let features = features.filter(|feature| feature.of(asked) != feature.of(&self.point));
        let words = features.map(|feature| {
            let shown = |point: &Point| feature.shown(feature.of(point));
            format!(
                "{} {} instead of {}",
                feature.name(),
                shown(&self.point),
                shown(asked)
            )
        });
        words.collect()
    }

    /// A shell script that runs the lines between two machines.
    pub(crate) fn script(&self) -> String {
        let mut text = SCRIPT_HEAD.to_owned();
        for host in [Host::A, Host::B] {
            let is_far = |line: &Line| {
                let ends = [(line.from, line.memory), (line.to, line.remote_memory)];
                ends.contains(&(host, MemoryPlace::RemoteSocket))
            };
            let end = host.letter();
            if self.lines.iter().any(is_far) {
                text.push_str(&format!(
                    ": \"${{FAR_{end}:?FAR_{end} is the number of a NUMA node of host {end} other than that of the device}}\"\n"
                ));
            }
        }
        for server in [true, false] {
            let mut port = PORT_FIRST;
            if !server {
                text.push_str("sleep 2   # the servers listen\n");
            }
            for line in &self.lines {
                text.push_str(&line.shell(server, port));
                port += line.processes;
            }
        }
        text.push_str("wait\n");
        text
    }
}

const SCRIPT_HEAD: &str = "set -eu
: \"${ADDRESS_A:?ADDRESS_A is a name or address of host A}\"
: \"${ADDRESS_B:?ADDRESS_B is a name or address of host B}\"
: \"${DEVICE_A:=mlx5_0}\" \"${DEVICE_B:=mlx5_0}\" \"${SECONDS_EACH:=10}\"
: \"${ON_A:=}\" \"${ON_B:=}\"   # what starts a program there, like: ssh hosta
";

impl Line {
    /// The loop that starts the servers or the clients.
    fn shell(&self, server: bool, port: u32) -> String {
        let (host, place) = match server {
            true => (self.to, self.remote_memory),
            false => (self.from, self.memory),
        };
        let end = host.letter();
        let near = match place {
            MemoryPlace::RemoteSocket => format!("numactl --membind=\"$FAR_{end}\" "),
            _ => String::new(),
        };
        let gpu = match place {
            MemoryPlace::Gpu => " --use_cuda=0",
            _ => "",
        };
        let peer = match server {
            true => String::new(),
            false => format!(" \"$ADDRESS_{}\"", self.to.letter()),
        };
        let last = port + self.processes - 1;
        format!(
            "for port in $(seq {port} {last}); do\n  \
             # shellcheck disable=SC2086\n  \
             $ON_{end} {near}{}{gpu} -F -D \"$SECONDS_EACH\" -d \"$DEVICE_{end}\" -p \"$port\"{peer} &\n\
             done\n",
            self.command
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regress::published;
    use crate::space::tests::{plain, profile};
    use expect_test::expect;

    #[test]
    fn published_triggers_are_lines_or_have_a_reason() {
        let device = profile("cx6-200g-roce");
        let limits = DeviceLimits::of(&device);
        let all = published(&device).into_iter().map(|one| {
            let words = match of(&one.point, &limits) {
                Ok(found) => {
                    let lines = found.lines.iter();
                    let lines: Vec<String> = lines
                        .map(|line| format!("{} x {}", line.processes, line.command))
                        .collect();
                    let mut differences = found.differences(&one.point);
                    differences.insert(0, lines.join("; "));
                    differences.join("; ")
                }
                Err(reason) => reason,
            };
            format!("{}: {words}\n", one.name)
        });
        expect![[r#"
            collie#1: 1 x ib_send_bw -c UD -m 2048 -s 2048 -q 1 -t 256 -l 64 -r 512 --recv_post_list 64; region_bytes 8KiB instead of 64KiB
            collie#2: 16 x ib_send_bw -c UD -m 1024 -s 1024 -q 1 -t 1024 -l 4 -r 2048 --recv_post_list 4; region_bytes 8KiB instead of 64KiB
            collie#3: 8 x ib_read_bw -c RC -m 1024 -s 4194304 -q 1 -t 128 -Q 1 -o 16; region_bytes 8MiB instead of 4MiB
            collie#4: perftest posts requests of one scatter-gather element only
            collie#5: perftest posts requests of one scatter-gather element only
            collie#6: perftest posts requests of one scatter-gather element only
            collie#7: 8 x ib_write_bw -c RC -m 1024 -s 512 -q 1 -t 128 -Q 1; 8 x ib_write_bw -c RC -m 1024 -s 512 -q 2 -t 128 -Q 1 --mr_per_qp; regions 16 instead of 24576; region_bytes 8KiB instead of 64KiB
            collie#8: 16 x ib_write_bw -c RC -m 1024 -s 512 -q 30 -t 16 -Q 1 --mr_per_qp; region_bytes 8KiB instead of 64KiB
            collie#9: perftest posts requests of one scatter-gather element only
            collie#10: perftest posts requests of one size only
            collie#11: 1 x ib_write_bw -c RC -m 4096 -s 262144 -q 1 -t 128 -l 16; 1 x ib_write_bw -c RC -m 4096 -s 262144 -q 1 -t 128 -l 16; regions 1 instead of 32; region_bytes 512KiB instead of 4MiB
            collie#12: perftest posts requests of one scatter-gather element only
            collie#13: 8 x ib_write_bw -c RC -m 4096 -s 262144 -q 1 -t 128 -l 16; 8 x ib_write_bw -c RC -m 4096 -s 262144 -q 1 -t 128 -l 16; regions 16 instead of 512; region_bytes 512KiB instead of 4MiB
        "#]].assert_eq(&all.collect::<String>());
    }

    #[test]
    fn a_script_starts_servers_before_clients_and_each_on_its_own_port() {
        let point = Point {
            direction: crate::space::point::BIDIRECTIONAL,
            memory_a: 1,
            memory_b: 2,
            queue_pairs: 17,
            ..plain()
        };
        let limits = DeviceLimits::of(&profile("cx6-200g-roce"));
        expect![[r#"
            set -eu
            : "${ADDRESS_A:?ADDRESS_A is a name or address of host A}"
            : "${ADDRESS_B:?ADDRESS_B is a name or address of host B}"
            : "${DEVICE_A:=mlx5_0}" "${DEVICE_B:=mlx5_0}" "${SECONDS_EACH:=10}"
            : "${ON_A:=}" "${ON_B:=}"   # what starts a program there, like: ssh hosta
            : "${FAR_A:?FAR_A is the number of a NUMA node of host A other than that of the device}"
            for port in $(seq 18515 18529); do
              # shellcheck disable=SC2086
              $ON_B ib_send_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -r 512 --recv_post_list 1 --use_cuda=0 -F -D "$SECONDS_EACH" -d "$DEVICE_B" -p "$port" &
            done
            for port in $(seq 18530 18530); do
              # shellcheck disable=SC2086
              $ON_B ib_send_bw -c RC -m 4096 -s 4096 -q 2 -t 128 -Q 1 -r 512 --recv_post_list 1 --use_cuda=0 -F -D "$SECONDS_EACH" -d "$DEVICE_B" -p "$port" &
            done
            for port in $(seq 18531 18545); do
              # shellcheck disable=SC2086
              $ON_A numactl --membind="$FAR_A" ib_send_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -r 512 --recv_post_list 1 -F -D "$SECONDS_EACH" -d "$DEVICE_A" -p "$port" &
            done
            for port in $(seq 18546 18546); do
              # shellcheck disable=SC2086
              $ON_A numactl --membind="$FAR_A" ib_send_bw -c RC -m 4096 -s 4096 -q 2 -t 128 -Q 1 -r 512 --recv_post_list 1 -F -D "$SECONDS_EACH" -d "$DEVICE_A" -p "$port" &
            done
            sleep 2   # the servers listen
            for port in $(seq 18515 18529); do
              # shellcheck disable=SC2086
              $ON_A numactl --membind="$FAR_A" ib_send_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -r 512 --recv_post_list 1 -F -D "$SECONDS_EACH" -d "$DEVICE_A" -p "$port" "$ADDRESS_B" &
            done
            for port in $(seq 18530 18530); do
              # shellcheck disable=SC2086
              $ON_A numactl --membind="$FAR_A" ib_send_bw -c RC -m 4096 -s 4096 -q 2 -t 128 -Q 1 -r 512 --recv_post_list 1 -F -D "$SECONDS_EACH" -d "$DEVICE_A" -p "$port" "$ADDRESS_B" &
            done
            for port in $(seq 18531 18545); do
              # shellcheck disable=SC2086
              $ON_B ib_send_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -r 512 --recv_post_list 1 --use_cuda=0 -F -D "$SECONDS_EACH" -d "$DEVICE_B" -p "$port" "$ADDRESS_A" &
            done
            for port in $(seq 18546 18546); do
              # shellcheck disable=SC2086
              $ON_B ib_send_bw -c RC -m 4096 -s 4096 -q 2 -t 128 -Q 1 -r 512 --recv_post_list 1 --use_cuda=0 -F -D "$SECONDS_EACH" -d "$DEVICE_B" -p "$port" "$ADDRESS_A" &
            done
            wait
        "#]].assert_eq(&of(&point, &limits).unwrap().script());
    }

    #[test]
    fn two_kinds_of_traffic_are_commands_that_run_together() {
        let reads = Feature::Service.set(&plain(), 2);
        let point = Point {
            direction: crate::space::point::BIDIRECTIONAL,
            ..plain().beside(&reads)
        };
        let limits = DeviceLimits::of(&profile("cx6-200g-roce"));
        let found = of(&point, &limits).unwrap();
        let lines = found.lines.iter();
        let lines: Vec<String> = lines
            .map(|line| format!("{} {}", line.from.letter(), line.command))
            .collect();
        expect![[r#"
            A ib_send_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -r 512 --recv_post_list 1
            B ib_read_bw -c RC -m 4096 -s 4096 -q 1 -t 128 -Q 1 -o 16"#]]
        .assert_eq(&lines.join("\n"));
        assert_eq!(found.point.second, point.second);
    }

    #[test]
    fn a_list_of_several_sizes_is_no_perftest() {
        let point = Point {
            requests: vec![vec![64], vec![128]],
            ..plain()
        };
        let limits = DeviceLimits::of(&profile("cx6-200g-roce"));
        let reason = of(&point, &limits).unwrap_err();
        assert_eq!(reason, "perftest posts requests of one size only");
    }
}
