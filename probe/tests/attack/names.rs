//! Names that point here (DNS rebinding), and proxies that say nothing of themselves but in their headers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use plimsoll_testkit::synthetic;

use crate::server;

fn talk(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn a_name_of_the_web_that_points_here_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    for (host, expected) in [
        ("Host: rebind.test:7070\r\n", "421"),
        ("Host: evil.example\r\n", "421"),
        ("Host: 127.0.0.1:80@evil\r\n", "400"),
        ("Host: [::1].evil.example\r\n", "400"),
        ("Host: localhost\r\nHost: evil.example\r\n", "400"),
        ("", "400"),
        ("Host: localhost:7070\r\n", "200"),
        ("Host: [::1]:7070\r\n", "200"),
    ] {
        for path in ["/api/v1/measurements", "/"] {
            let answer = talk(&server.address, &format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
            let without_planner = path == "/" && expected == "200";
            assert!(status(&answer) == expected || without_planner, "{host}{path}: {answer}");
        }
    }
    let odd =
        talk(&server.address, "GET /api/v1/measurements/%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(status(&odd) == "404" && odd.contains("application/problem+json"), "{odd}");
    server.end().unwrap();
}

#[test]
fn what_a_proxy_adds_is_no_program_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let record = serde_json::to_string(&synthetic::record(1)).unwrap();
    let upload = |more: &str| {
        let text = format!(
            "POST /api/v1/measurements HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}\
             Content-Length: {}\r\nConnection: close\r\n\r\n{record}",
            record.len()
        );
        status(&talk(&server.address, &text)).to_owned()
    };
    for name in ["X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "X-Forwarded-Host", "X-Forwarded-Proto"] {
        assert_eq!(upload(&format!("{name}: 192.0.2.1\r\n")), "403", "{name}");
    }
    assert_eq!(upload(""), "201");
    server.end().unwrap();
}
