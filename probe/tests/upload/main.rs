//! `plimsoll upload` as its users and its servers meet it.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

mod home;
mod port;
#[cfg(unix)]
mod terminal;

use std::fs;
use std::time::{Duration, Instant};

use home::{Home, stderr, stdout};
use port::{Port, Reply};

const CREATED: &str = "HTTP/1.1 201 Created\r\nLocation: /api/v1/measurements/abc\r\n\r\n";

#[test]
fn what_is_shown_is_what_is_sent() {
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let requests = port.requests();
    let [request] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    assert_eq!(request.line, "POST /api/v1/measurements HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None);
    assert!(stdout(&output).contains(&request.body), "{}", stdout(&output));
    assert!(stdout(&output).contains("a.json was accepted: /api/v1/measurements/abc"), "{}", stdout(&output));
    assert_eq!(request.body, fs::read_to_string(&record).unwrap(), "a record goes as it lies in its file");
    let sent: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(sent["device"]["name"], "NVIDIA GeForce RTX 5070 Ti Laptop GPU");
    let key = request.header("idempotency-key").unwrap();
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
}

#[test]
fn nothing_goes_twice() {
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED), Reply::says(CREATED), Reply::says(CREATED)]));
    let (first, second) = (home.record("a.json", 1), home.record("b.json", 2));
    let again = home.record("copy.json", 1);
    for (args, count) in [(vec![&first, &again], 1), (vec![&first], 1), (vec![&again, &second], 2)] {
        let mut words: Vec<&str> = args.iter().map(|path| path.as_str()).collect();
        words.extend(["--to", &port.address, "--yes"]);
        let output = home.upload(&words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(port.count(), count, "{}", stdout(&output));
    }
    let all_known = home.upload(&[&first, &second, "--to", &port.address]);
    assert_eq!(all_known.status.code(), Some(0), "nothing to send is nothing to ask");
    assert!(stdout(&all_known).contains("was sent to 127.0.0.1 before"), "{}", stdout(&all_known));
    let requests = port.requests();
    assert_ne!(requests[0].header("idempotency-key"), requests[1].header("idempotency-key"));
}

#[test]
fn another_server_is_another_matter() {
    let home = Home::new();
    let (one, two) = (Port::new([Reply::says(CREATED)]), Port::new([Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    for port in [&one, &two] {
        assert_eq!(home.upload(&[&record, "--to", &port.address, "--yes"]).status.code(), Some(0));
        assert_eq!(port.count(), 1);
    }
}

#[test]
fn a_server_that_has_it_already_is_content() {
    for said in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 409 Conflict\r\n\r\n"] {
        let (home, port) = (Home::new(), Port::new([Reply::says(said)]));
        let record = home.record("a.json", 1);
        for _ in 0..2 {
            let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
        assert_eq!(port.count(), 1);
    }
}

#[test]
fn trouble_passes() {
    let replies = [
        Reply::Reset,
        Reply::says("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
        Reply::says("HTTP/1.1 201 Cre"),
        Reply::says(CREATED),
    ];
    let (home, port) = (Home::new(), Port::new(replies));
    let record = home.record("a.json", 1);
    let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("trying again in"), "{}", stderr(&output));
    let requests = port.requests();
    let keys: Vec<_> = requests.iter().filter_map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys.len(), 3, "the reset try never got that far");
    assert!(keys.iter().all(|key| *key == keys[0]), "the server can tell that it is the same record: {keys:?}");
}

#[test]
fn a_busy_server_says_when() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\n\r\n";
    let (home, port) = (Home::new(), Port::new([Reply::says(busy), Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    let start = Instant::now();
    let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(port.count(), 2);

    let tomorrow = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 86400\r\n\r\n";
    let port = Port::new([Reply::says(tomorrow)]);
    let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("86400 s"), "{}", stderr(&output));
}

#[test]
fn patience_ends() {
    let home = Home::new();
    let record = home.record("a.json", 1);
    let trouble = "HTTP/1.1 500 Internal Server Error\r\n\r\n";
    let port = Port::new([Reply::says(trouble), Reply::says(trouble)]);
    let output = home.upload(&[&record, "--to", &port.address, "--yes", "--tries", "2"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("answered 500 (after 2 tries)"), "{}", stderr(&output));
    assert_eq!(port.count(), 2);

    let silent = Port::new([Reply::Nothing]);
    let output = home.upload(&[&record, "--to", &silent.address, "--yes", "--tries", "1", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("did not answer in time"), "{}", stderr(&output));

    let output = home.upload(&[&record, "--to", &port::nobody(), "--yes", "--tries", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("check --to"), "{}", stderr(&output));
}

#[test]
fn a_refusal_is_told_in_the_servers_words_and_not_repeated() {
    let body = r#"{"type": "about:blank", "title": "Not a record", "detail": "peak.process: missing", "status": 400}"#;
    let said = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (home, port) = (Home::new(), Port::new([Reply::says(&said), Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("answered 400, Not a record: peak.process: missing"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint:"), "{}", stderr(&output));
    assert_eq!(port.count(), 1);
    // It was not acknowledged: it may be sent when the server has learned better.
    assert_eq!(home.upload(&[&record, "--to", &port.address, "--yes"]).status.code(), Some(0));
}

#[test]
fn the_token_goes_to_its_server_only() {
    let elsewhere = Port::new([Reply::says(CREATED)]);
    let said = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {}/x\r\n\r\n", elsewhere.address);
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED), Reply::says(&said), Reply::says(CREATED)]));
    let token = home.file("token", b"s3cret-of-the-file\n");
    let (one, two) = (home.record("a.json", 1), home.record("b.json", 2));
    let output = home.upload(&[&one, "--to", &port.address, "--yes", "--token-file", &token]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = home.upload(&[&two, "--to", &port.address, "--yes", "--token-env", "UPLOAD_TOKEN"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("points elsewhere"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("s3cret") && !stdout(&output).contains("s3cret"));
    let requests = port.requests();
    assert_eq!(requests[0].header("authorization"), Some("Bearer s3cret-of-the-file"));
    assert_eq!(requests[1].header("authorization"), Some("Bearer s3cret-of-the-environment"));
    assert_eq!(elsewhere.count(), 0);
}

#[test]
fn without_a_terminal_or_a_yes_nothing_goes() {
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    let output = home.upload(&[&record, "--to", &port.address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("give --yes"), "{}", stderr(&output));
    assert_eq!(port.count(), 0);
}

#[test]
fn one_broken_record_keeps_all_ashore() {
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED)]));
    let good = home.record("a.json", 1);
    for (content, code) in [("{", 2), ("{}", 2), ("[1]", 2), ("\u{0}", 2)] {
        let bad = home.file("bad.json", content.as_bytes());
        let output = home.upload(&[&good, &bad, "--to", &port.address, "--yes"]);
        assert_eq!(output.status.code(), Some(code), "{content:?}");
        assert!(stderr(&output).contains("bad.json"), "{}", stderr(&output));
    }
    let missing = home.upload(&[&good, "/no/such.json", "--to", &port.address, "--yes"]);
    assert_eq!(missing.status.code(), Some(3));
    assert_eq!(port.count(), 0);
}

#[test]
fn clear_text_over_the_wire_takes_a_word() {
    let home = Home::new();
    let record = home.record("a.json", 1);
    // An address set aside for documentation (RFC 5737): nobody is there.
    let output = home.upload(&[&record, "--to", "http://192.0.2.1", "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--insecure"), "{}", stderr(&output));
}

#[test]
fn two_uploads_at_once_send_once() {
    let (home, port) = (Home::new(), Port::new([Reply::slow(CREATED), Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let output = home.upload(&[&record, "--to", &port.address, "--yes"]);
                assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            });
        }
    });
    assert_eq!(port.count(), 1);
}
