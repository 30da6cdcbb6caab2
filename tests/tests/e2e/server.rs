//! `plimsoll serve` as a process: how it starts, refuses and ends.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use url::Url;

use crate::{journey::Server, process::Process, surroundings};

/// `ENVIRONMENT` of the exit codes: something outside is in the way.
const ENVIRONMENT: i32 = 3;

#[test]
fn it_says_that_it_is_alive() -> Result<()> {
    let server = Server::start()?;
    let answer = get(&server.url, "/healthz", "")?;
    ensure!(answer.starts_with("HTTP/1.1 200") && answer.contains("\r\n\r\nok plimsoll "), "{answer}");
    Ok(())
}

#[test]
fn the_planner_comes_with_its_policy_and_compressed() -> Result<()> {
    let server = Server::start()?;
    let page = get(&server.url, "/", "Accept: text/html\r\n")?;
    let head = page.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    ensure!(head.starts_with("http/1.1 200") && head.contains("content-type: text/html"), "{head}");
    let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).context("no policy")?;
    ensure!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
    let wasm = page.split(['"', '\'', '`']).find(|part| part.ends_with(".wasm")).context("the page names no wasm")?;
    let path = server.url.join(wasm)?.path().to_owned();
    let wasm = get(&server.url, &path, "Accept-Encoding: br\r\n")?;
    let head = wasm.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    for header in ["content-type: application/wasm", "content-encoding: br", "immutable"] {
        ensure!(head.contains(header), "{path} comes without {header}: {head}");
    }
    let missing = get(&server.url, "/planner-0000.wasm", "")?;
    ensure!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    Ok(())
}

#[test]
fn a_port_taken_by_another_plimsoll_is_named() -> Result<()> {
    let first = Server::start()?;
    let port = first.url.port().context("no port")?;
    let error = refused(port)?;
    for part in ["a Plimsoll is already serving at", &format!("http://127.0.0.1:{port}/"), "hint:", "--listen"] {
        ensure!(error.contains(part), "{part:?} is not in {error:?}");
    }
    // The first one is none the worse for it.
    ensure!(get(&first.url, "/healthz", "")?.starts_with("HTTP/1.1 200"));
    Ok(())
}

#[test]
fn a_port_taken_by_another_program_is_named() -> Result<()> {
    let other = TcpListener::bind("127.0.0.1:0")?;
    let port = other.local_addr()?.port();
    let error = refused(port)?;
    for part in [&format!("port {port} of 127.0.0.1 is taken by another program"), "hint:", "--listen"] {
        ensure!(error.contains(part), "{part:?} is not in {error:?}");
    }
    Ok(())
}

#[test]
fn an_address_of_another_machine_is_refused() -> Result<()> {
    // A documentation address (RFC 5737): no machine's own.
    let (code, error) = ended(&["--listen", "192.0.2.1:7070"])?;
    ensure!(code == Some(ENVIRONMENT) && error.contains("192.0.2.1:7070") && error.contains("hint:"), "{error}");
    let (code, error) = ended(&["--listen", "nowhere"])?;
    ensure!(code == Some(2) && error.contains("nowhere"), "{code:?}: {error}");
    Ok(())
}

#[cfg(unix)]
#[test]
fn it_ends_in_good_order_when_told_to() -> Result<()> {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start()?;
        // A browser keeps its connections open; they must not keep the server.
        let mut open = connect(&server.url)?;
        write!(open, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut first = [0; 12];
        open.read_exact(&mut first)?;
        ensure!(&first == b"HTTP/1.1 200");

        let id = server.process.id().to_string();
        let told = Command::new("kill").args([&format!("-{signal}"), &id]).status()?;
        ensure!(told.success(), "kill -{signal} {id} failed");
        let status = server.process.end()?;
        ensure!(status.code() == Some(0), "after {signal}: {status}; {}", server.process.errors());
    }
    Ok(())
}

/// What `plimsoll serve` says of this port, which it must not get.
fn refused(port: u16) -> Result<String> {
    let (code, error) = ended(&["--listen", &format!("127.0.0.1:{port}")])?;
    ensure!(code == Some(ENVIRONMENT), "it ended with {code:?}: {error}");
    Ok(error)
}

/// Exit code and error output of a `plimsoll serve` that does not start.
fn ended(arguments: &[&str]) -> Result<(Option<i32>, String)> {
    // It ends before it keeps anything, but not before it opens what it would keep it in.
    let data = tempfile::tempdir()?;
    let mut serve = Command::new(surroundings::plimsoll()?);
    let mut process = Process::start(serve.arg("serve").args(arguments).env("XDG_DATA_HOME", data.path()))?;
    let status = process.end()?;
    Ok((status.code(), process.errors()))
}

fn connect(url: &Url) -> Result<TcpStream> {
    let stream = TcpStream::connect((url.host_str().unwrap_or_default(), url.port().unwrap_or_default()))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    Ok(stream)
}

/// The whole answer to a request; what is no text in it is replaced.
fn get(url: &Url, path: &str, headers: &str) -> Result<String> {
    let mut stream = connect(url)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
