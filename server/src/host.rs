//! By which name a request asks for the server. A server of this machine alone answers to this machine's names: a page
//! of the web could otherwise have its own name point here (DNS rebinding), and read whatever the server gives away.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api::Problem;

/// The names a server answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Any: who reaches it may read it.
    Any,
    /// This machine's own, and these.
    Here(Vec<String>),
}

/// Why a request names no host that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHost {
    /// It names none.
    Missing,
    /// It names several, or something that is no name.
    Malformed,
}

/// The host a request asks for, without the port.
pub(crate) fn asked<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, BadHost> {
    let mut given = headers.get_all(header::HOST).iter();
    let (first, more) = (given.next(), given.next());
    if more.is_some() {
        return Err(BadHost::Malformed);
    }
    let named = first.map(|value| value.to_str().ok().and_then(name).ok_or(BadHost::Malformed)).transpose()?;
    // Of an absolute address in the request line the header is only an echo (RFC 9112, section 3.2.2).
    match uri.authority() {
        Some(authority) => name(authority.as_str()).ok_or(BadHost::Malformed),
        None => named.ok_or(BadHost::Missing),
    }
}

/// The name in `name`, `name:port`, `[address]` or `[address]:port`; nothing else is one.
fn name(text: &str) -> Option<&str> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let good = address.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
            (good.then_some(address)?, port)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (name, port) = text.split_at(end);
            let good = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            (good.then_some(name)?, port)
        }
    };
    let port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    (port && !name.is_empty()).then_some(name)
}

/// Whether a name is this machine's own.
pub(crate) fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

impl Names {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Here(more) => is_loopback(name) || more.iter().any(|one| one.eq_ignore_ascii_case(name)),
        }
    }
}

/// Answers requests that ask for somebody else.
pub(crate) async fn check(State(names): State<Names>, request: Request, next: Next) -> Response {
    let bad = |status, detail| Problem::new(status, "host", "The request names another host", detail).into_response();
    match asked(request.uri(), request.headers()) {
        Ok(name) if names.has(name) => next.run(request).await,
        // Older than the header.
        Err(BadHost::Missing) if request.version() == Version::HTTP_10 => next.run(request).await,
        Ok(_) => bad(
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers to its own machine's names only; whoever runs it gives others with `plimsoll serve \
             --host NAME`, or says with --proxies that a proxy stands before it",
        ),
        Err(BadHost::Missing) => bad(StatusCode::BAD_REQUEST, "a request needs a Host header"),
        Err(BadHost::Malformed) => bad(StatusCode::BAD_REQUEST, "a request needs one Host header, with a name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[&str], uri: &'static str) -> Result<String, BadHost> {
        let headers = hosts.iter().map(|host| (header::HOST, host.parse().unwrap())).collect();
        asked(&Uri::from_static(uri), &headers).map(str::to_owned)
    }

    #[test]
    fn hosts_as_browsers_write_them_and_as_attackers_do() {
        for (host, name) in [
            ("127.0.0.1:7070", "127.0.0.1"),
            ("LocalHost", "LocalHost"),
            ("[::1]:80", "::1"),
            ("a-b.example:1", "a-b.example"),
        ] {
            assert_eq!(of(&[host], "/").as_deref(), Ok(name));
        }
        for host in
            ["127.0.0.1:80@evil", "[::1].evil.example", "a b", "", ":80", "[::1", "localhost:80:80", "localhost/x"]
        {
            assert_eq!(of(&[host], "/"), Err(BadHost::Malformed), "{host}");
        }
        assert_eq!(of(&["localhost", "evil.example"], "/"), Err(BadHost::Malformed));
        assert_eq!(of(&[], "/"), Err(BadHost::Missing));
        assert_eq!(of(&["localhost"], "http://evil.example/").as_deref(), Ok("evil.example"));
        assert_eq!(of(&["localhost"], "http://localhost@evil.example/"), Err(BadHost::Malformed));
    }

    #[test]
    fn this_machines_names() {
        let here = Names::Here(vec!["plimsoll.lan".to_owned()]);
        for name in ["localhost", "LOCALHOST.", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "Plimsoll.LAN"] {
            assert!(here.has(name), "{name}");
        }
        for name in ["evil.example", "192.0.2.1", "localhost.evil.example", "0.0.0.0"] {
            assert!(!here.has(name) && Names::Any.has(name), "{name}");
        }
    }
}
