//! Who may upload.
//!
//! With tokens: whoever has one. Without any, a server that only this machine reaches lets this machine's programs in,
//! but not the pages in its browser: any page of the web could otherwise write here.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};

use crate::host;
use crate::store::{Store, StoreError};

use super::problem::Problem;
use super::rate::Caller;

const FORWARDED: HeaderName = header::FORWARDED;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What proxies add of their own, many without being told to.
const PROXIES: [&str; 9] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fastly-client-ip",
    "x-envoy-external-address",
    "x-original-host",
    "x-amzn-trace-id",
];
/// Those that begin so are a proxy's too: `X-Forwarded-Host`, `-Proto`, `-Port`, `-Server`.
const FORWARDED_OF: &str = "x-forwarded-";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Longest token that is looked at, in bytes.
const TOKEN: usize = 256;

/// What a request says of whoever sent it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub headers: &'a HeaderMap,
    pub uri: &'a Uri,
    pub peer: Option<SocketAddr>,
    /// Proxies of ours that every request comes through.
    pub proxies: usize,
}

/// Whether an upload may be, and whose count it goes on.
#[derive(Debug)]
pub(super) enum Access {
    /// It may, with this token.
    Token(String),
    /// It may, from this machine.
    Local,
    /// It may not.
    Refused(Problem),
}

impl Sender<'_> {
    /// Decides on an upload. `local` when the server listens to this machine only.
    pub(super) async fn access(&self, store: &Store, local: bool) -> Result<Access, StoreError> {
        if let Some(value) = self.headers.get(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(bearer).filter(|token| token.len() <= TOKEN);
            let Some(token) = token else {
                return Ok(Access::Refused(unauthorized("the Authorization header holds no bearer token")));
            };
            return Ok(match store.check_token(token).await? {
                Some(id) => Access::Token(id),
                None => Access::Refused(unauthorized("the token is not one of this server's, or was revoked")),
            });
        }
        if store.asks_for_tokens().await? {
            return Ok(Access::Refused(unauthorized("this server takes uploads with a token only")));
        }
        if !local {
            return Ok(Access::Refused(Problem::new(
                StatusCode::FORBIDDEN,
                "no-uploads",
                "This server takes no uploads yet",
                "it can be reached from other machines and has no tokens: whoever runs it makes one with `plimsoll token \
                 create`",
            )));
        }
        Ok(if self.is_program_here() {
            Access::Local
        } else {
            Access::Refused(Problem::new(
                StatusCode::FORBIDDEN,
                "local-only",
                "This server takes uploads from programs of its own machine only",
                "what was sent came through a proxy or from a web page; `plimsoll token create` makes a token for it",
            ))
        })
    }

    /// Whether it is a program on this machine that asks: not a proxy that brings others here, and not a web page,
    /// also none that made its own name point to this machine.
    fn is_program_here(&self) -> bool {
        let foreign = [FORWARDED, header::VIA, header::ORIGIN];
        let proxied = |name: &HeaderName| {
            name.as_str().starts_with(FORWARDED_OF) || PROXIES.contains(&name.as_str()) || foreign.contains(name)
        };
        self.proxies == 0
            && self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
            && !self.headers.keys().any(proxied)
            && self.headers.get(FETCH_SITE).is_none_or(|site| site == "none" || site == "same-origin")
            && host::asked(self.uri, self.headers).is_ok_and(host::is_loopback)
    }

    /// Who is counted when there is no token.
    pub(super) fn caller(&self) -> Caller {
        let peer = self.peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.ip());
        Caller::peer(self.forwarded().unwrap_or(peer))
    }

    /// The address our outermost proxy saw: each proxy adds one at the end, and what stands before those is whatever
    /// the caller made up.
    fn forwarded(&self) -> Option<IpAddr> {
        let values = self.headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let addresses: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
        let at = addresses.len().checked_sub(self.proxies.max(1))?;
        if self.proxies == 0 {
            return None;
        }
        addresses.get(at)?.trim().parse().ok()
    }
}

fn unauthorized(detail: &str) -> Problem {
    let detail = format!(
        "{detail}; give one as `Authorization: Bearer TOKEN`, with plimsoll upload by --token-env or --token-file"
    );
    Problem::new(StatusCode::UNAUTHORIZED, "token", "A token is needed", detail)
}

/// The token of `Bearer TOKEN`; the scheme's case does not matter (RFC 9110, section 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn here(peer: &str, pairs: &[(&'static str, &'static str)]) -> bool {
        let (headers, uri) = (headers(pairs), Uri::from_static("/api/v1/measurements"));
        Sender { headers: &headers, uri: &uri, peer: Some(peer.parse().unwrap()), proxies: 0 }.is_program_here()
    }

    #[test]
    fn programs_of_this_machine_and_nobody_else() {
        let host = ("host", "127.0.0.1:7070");
        assert!(here("127.0.0.1:5", &[host]));
        assert!(here("[::1]:5", &[("host", "[::1]:7070")]));
        assert!(here("127.0.0.1:5", &[("host", "localhost:7070")]));
        assert!(!here("192.0.2.1:5", &[host]));
        // A page of another site, and one that lets its name point here.
        assert!(!here("127.0.0.1:5", &[host, ("origin", "https://evil.example")]));
        assert!(!here("127.0.0.1:5", &[host, ("sec-fetch-site", "cross-site")]));
        assert!(!here("127.0.0.1:5", &[("host", "evil.example:7070")]));
        assert!(!here("127.0.0.1:5", &[]));
        // What is no name, and two of them.
        assert!(!here("127.0.0.1:5", &[("host", "127.0.0.1:80@evil")]));
        assert!(!here("127.0.0.1:5", &[("host", "[::1].evil.example")]));
        let (mut two, uri) = (headers(&[host]), Uri::from_static("/"));
        two.append("host", "localhost".parse().unwrap());
        let sender = Sender { headers: &two, uri: &uri, peer: None, proxies: 0 };
        assert!(!sender.is_program_here());
        // Behind a proxy everybody is one of ours.
        let (one, uri) = (headers(&[host]), Uri::from_static("/"));
        assert!(!Sender { headers: &one, uri: &uri, peer: None, proxies: 1 }.is_program_here());
        // A proxy that brings the world here.
        for name in [
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-real-ip",
            "cf-connecting-ip",
            "true-client-ip",
            "forwarded",
            "via",
        ] {
            assert!(!here("127.0.0.1:5", &[host, (name, "x")]), "{name}");
        }
    }

    #[test]
    fn only_what_our_own_proxies_wrote_is_believed() {
        let caller = |proxies, pairs: &[(&'static str, &'static str)]| {
            let (headers, uri) = (headers(pairs), Uri::from_static("/"));
            Sender { headers: &headers, uri: &uri, peer: Some("10.0.0.1:5".parse().unwrap()), proxies }.caller()
        };
        let peer = |text: &str| Caller::peer(text.parse().unwrap());
        let chain = [("x-forwarded-for", "1.1.1.1, 192.0.2.7")];
        assert_eq!(caller(0, &chain), peer("10.0.0.1"));
        assert_eq!(caller(1, &chain), peer("192.0.2.7"));
        assert_eq!(caller(2, &chain), peer("1.1.1.1"));
        assert_eq!(caller(3, &chain), peer("10.0.0.1"));
        assert_eq!(caller(1, &[]), peer("10.0.0.1"));
        assert_eq!(caller(1, &[("x-forwarded-for", "1.1.1.1, nonsense")]), peer("10.0.0.1"));
    }

    #[test]
    fn bearer_tokens_as_they_are_written() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("Bearer"), None);
    }
}
