//! A worker that measures nothing: it follows the protocol and answers by formulas. Its tenant's name selects the
//! misbehaviour.

use crate::note_process;
use isolane_rdma_traffic::worker::{
    EndAddress, EndReport, Failure, FailureKind, FromWorker, Job, Lines, Prepared, Report, Sample,
    ToWorker, Window, Work, write_line,
};
use std::io::BufReader;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Goodput of every posting end.
pub(crate) const GBPS: f64 = 0.5;

pub(crate) fn run() -> ExitCode {
    note_process("worker");
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        let mut lines = Lines::new(BufReader::new(std::io::stdin()));
        while let Ok(Some(message)) = lines.next_message::<ToWorker>() {
            if sender.send(message).is_err() {
                return;
            }
        }
        // No coordinator, no traffic.
        std::process::exit(1);
    });
    work(&messages);
    ExitCode::SUCCESS
}

fn say(message: &FromWorker) {
    write_line(&mut std::io::stdout(), message).unwrap();
}

fn work(messages: &Receiver<ToWorker>) {
    let Ok(ToWorker::Job(job)) = messages.recv() else {
        panic!("a job comes first")
    };
    job.check().unwrap();
    match job.tenant.as_str() {
        "babbles" => {
            println!("hello world");
            std::thread::sleep(Duration::from_secs(600));
        }
        "locked" => {
            say(&FromWorker::Failed(Failure {
                kind: FailureKind::Machine,
                message: "cannot lock memory: raise ulimit -l".to_owned(),
            }));
            return;
        }
        _ => {}
    }
    let address = |id: u32| EndAddress {
        lid: id as u16,
        ..EndAddress::default()
    };
    say(&FromWorker::Prepared(Prepared {
        process_id: std::process::id(),
        ends: job
            .ends
            .iter()
            .map(|end| (end.id, address(end.id)))
            .collect(),
    }));
    let Ok(ToWorker::Connect { peers }) = messages.recv() else {
        panic!("addresses come second")
    };
    for end in &job.ends {
        if let Work::Data(_) = end.work {
            assert_eq!(
                u32::from(peers[&end.id].lid),
                end.id ^ 1,
                "the peer's address"
            );
        }
    }
    say(&FromWorker::Connected);
    let Ok(ToWorker::Start { after_ns }) = messages.recv() else {
        panic!("then traffic starts")
    };
    std::thread::sleep(Duration::from_nanos(after_ns));
    if job.tenant == "dies" && job.posts() {
        eprintln!("last words");
        let ours = rustix::process::getpid();
        rustix::process::kill_process(ours, rustix::process::Signal::KILL).unwrap();
    }
    if job.tenant == "patient" {
        std::thread::sleep(Duration::from_secs(600));
    }
    let time = Duration::from_nanos(job.warmup.max_ns() + job.duration_ns);
    let window = match job.posts() {
        true => {
            std::thread::sleep(time);
            None
        }
        false => match messages.recv() {
            Ok(ToWorker::Stop { window }) => Some(window.expect("the posting end's window")),
            other => panic!("{other:?}"),
        },
    };
    say(&FromWorker::Report(Box::new(report(&job, window))));
    // The controller closes our input, which ends us.
    std::thread::sleep(Duration::from_secs(600));
}

fn report(job: &Job, window: Option<Window>) -> Report {
    let from_ns = job.warmup.max_ns();
    let ours = Window {
        from_ns,
        to_ns: from_ns + job.duration_ns,
    };
    let posts = job.posts();
    let bytes = |ns: u64| match posts {
        true => (GBPS / 8.0 * ns as f64) as u64,
        false => 0,
    };
    let points = ours.to_ns / job.sample_interval_ns;
    let sample = Sample {
        posted_bytes: bytes(job.sample_interval_ns),
        p99_ns: 5_000,
        ..Sample::default()
    };
    let ends = job.ends.iter().map(|end| EndReport {
        id: end.id,
        name: end.name.clone(),
        window: window.unwrap_or(ours),
        posted_bytes: bytes(job.duration_ns),
        posted_messages: bytes(job.duration_ns) / 65_536,
        queue_pair_bytes: vec![bytes(job.duration_ns)],
        ..EndReport::default()
    });
    Report {
        tenant: job.tenant.clone(),
        device: job.device.clone(),
        window: window.unwrap_or(ours),
        steady: true,
        sample_interval_ns: job.sample_interval_ns,
        series: vec![sample; points as usize],
        latency_counts: if posts {
            vec![(4_000, 100)]
        } else {
            Vec::new()
        },
        ends: ends.collect(),
        ..Report::default()
    }
}
