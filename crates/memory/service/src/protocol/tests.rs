//! Lines of the protocol: what is said comes back, and nothing that arrives can do harm.

use super::*;
use crate::application::tests::redis;
use proptest::prelude::*;

fn said(line: &str) -> String {
    Request::read(line.as_bytes()).unwrap_err().to_string()
}

fn submit() -> Request {
    Request::Submit(Submission {
        application: redis(),
        place: Place::Caller,
    })
}

#[test]
fn what_is_said_comes_back() {
    let requests = [
        Request::Status,
        submit(),
        Request::Remove(Name {
            name: "redis".into(),
        }),
        Request::Plan(Plan {
            application: redis(),
        }),
        Request::Metrics,
    ];
    for request in requests {
        let line = encode(&request);
        assert_eq!(line.last(), Some(&b'\n'));
        assert!(line.len() < REQUEST_MAX / 100, "{} bytes", line.len());
        assert_eq!(Request::read(&line[..line.len() - 1]), Ok(request));
    }
    let answer = Answer::Status(Box::default());
    let line = encode(&answer);
    assert_eq!(decode::<Answer>(&line), Ok(answer));
}

#[test]
fn another_version_is_rejected_with_any_content() {
    let failure = Request::read(br#"{"version":3,"ask":{"frobnicate":1}}"#).unwrap_err();
    assert_eq!(failure.code, FailureCode::Version);
    assert!(failure.message.contains("form 3, not 2"), "{failure}");
}

#[test]
fn what_is_unknown_or_against_the_rules_is_refused() {
    assert!(said(r#"{"version":2,"say":"stats"}"#).contains("unknown variant"));
    assert!(said(r#"{"version":2,"say":"status","more":1}"#).contains("unknown field"));
    assert!(
        said(r#"{"version":2,"say":{"remove":{"name":"../etc"}}}"#)
            .starts_with("name = \"../etc\"")
    );
    let line = String::from_utf8(encode(&submit())).unwrap();
    assert!(said(&line.replace("160000", "1")).starts_with("slo = 0.001ns: must be"));
    assert!(said(&line.replace("\"caller\"", r#"{"cgroup":"/a/../b"}"#)).starts_with("cgroup ="));
    assert!(said(&line.replace("\"weight\"", "\"wait\"")).contains("unknown field"));
    assert!(said(&line.replace("\"priority\":3", "\"priority\":-3")).contains("invalid value"));
}

#[test]
fn depth_does_not_overflow_the_stack() {
    let deep = "[".repeat(REQUEST_MAX);
    said(&deep);
    said(&format!(r#"{{"version":2,"say":{deep}"#));
    said(&format!(
        r#"{{"version":2,"say":{{"remove":{{"name":{deep}"#
    ));
    said(&format!(r#"{{"version":2,"more":{deep}"#));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_line_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::read(&bytes);
        let _ = decode::<Answer>(&bytes);
    }

    /// Nearly right lines reach deeper than noise does: one is cut, or one of its bytes is changed.
    #[test]
    fn no_damaged_request_panics_or_breaks_a_rule(at in 0usize..400, byte in any::<u8>(), cut in any::<bool>()) {
        let mut line = encode(&submit());
        let at = at % line.len();
        match cut {
            true => line.truncate(at),
            false => line[at] = byte,
        }
        if let Ok(Request::Submit(submission)) = Request::read(&line) {
            prop_assert!(submission.application.check().is_ok());
            prop_assert!(submission.place.check().is_ok());
        }
    }
}
