//! One record over HTTP, with patience.

use std::time::Duration;

use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER};

use super::address::Address;
use super::answer::{Accepted, Meaning, Refusal, meaning};
use super::retry;
use super::token::Token;

/// Most of an answer that is read, in bytes.
const ANSWER: u64 = 64 << 10;
/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(20);

/// Sends records to one address.
#[derive(Debug)]
pub struct Sender<'a> {
    agent: Agent,
    address: &'a Address,
    token: Option<Token>,
    tries: u32,
}

/// How a try ended, when it did not end well.
enum Failed {
    /// Worth another try, after this long if the server said so.
    Later(Refusal, Option<Duration>),
    Never(Refusal),
}

impl<'a> Sender<'a> {
    /// `tries` per record, each of which may take `timeout`.
    pub fn new(address: &'a Address, token: Option<Token>, tries: u32, timeout: Duration) -> Self {
        let mut config = Agent::config_builder()
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT.min(timeout)))
            .http_status_as_error(false)
            // Where a server points to, the token must not follow; the user is told instead.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
        if address.is_loopback() {
            // No proxy has this machine as its own.
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), address, token, tries }
    }

    /// Sends one record, again and again where that can help.
    pub fn send(&self, text: &str, hash: &str) -> Result<Accepted, Refusal> {
        let mut failed = 0;
        loop {
            let (refusal, wish) = match self.once(text, hash) {
                Ok(accepted) => return Ok(accepted),
                Err(Failed::Never(refusal)) => return Err(refusal),
                Err(Failed::Later(refusal, wish)) => (refusal, wish),
            };
            failed += 1;
            if failed >= self.tries {
                let tries = if failed == 1 { "1 try".to_owned() } else { format!("{failed} tries") };
                return Err(Refusal { problem: format!("{} (after {tries})", refusal.problem), ..refusal });
            }
            // Never sooner than the server wants it.
            let wait = retry::backoff(failed, retry::chance()).max(wish.unwrap_or_default());
            if wait > retry::PATIENCE {
                let problem = format!("{}, and wants no other try for {} s", refusal.problem, wait.as_secs());
                return Err(Refusal { problem, ..refusal });
            }
            eprintln!(
                "{}; trying again in {:.1} s ({} of {}).",
                refusal.problem,
                wait.as_secs_f64(),
                failed + 1,
                self.tries
            );
            std::thread::sleep(wait);
        }
    }

    fn once(&self, text: &str, hash: &str) -> Result<Accepted, Failed> {
        let mut request = self.agent.post(self.address.as_str()).header(CONTENT_TYPE, "application/json");
        // A server that got it, but whose answer was lost, knows the next try for the same one.
        request = request.header("Idempotency-Key", hash);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let mut response = request.send(text.as_bytes()).map_err(|error| self.failed(&error))?;
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (location, wish) = (header(LOCATION), header(RETRY_AFTER));
        // The status says enough when the body cannot be read.
        let body =
            response.body_mut().with_config().limit(ANSWER).lossy_utf8(true).read_to_string().unwrap_or_default();
        match meaning(status, location.as_deref(), &body, self.address) {
            Meaning::Accepted(accepted) => Ok(accepted),
            Meaning::Later(refusal) => Err(Failed::Later(refusal, wish.as_deref().and_then(retry::retry_after))),
            Meaning::Never(refusal) => Err(Failed::Never(refusal)),
        }
    }

    fn failed(&self, error: &ureq::Error) -> Failed {
        let host = self.address.host();
        let refusal = |problem: String, hint: &str| Refusal { problem, hint: hint.to_owned() };
        let reach = "check --to, and whether the server runs";
        match error {
            ureq::Error::Timeout(_) => Failed::Later(refusal(format!("{host} did not answer in time"), reach), None),
            ureq::Error::HostNotFound => Failed::Later(refusal(format!("no machine {host} was found"), reach), None),
            // A connection that breaks off in an answer shows as either.
            ureq::Error::Io(_) | ureq::Error::Protocol(_) | ureq::Error::ConnectionFailed => {
                Failed::Later(refusal(format!("the connection to {host} failed ({error})"), reach), None)
            }
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
                let hint = "check --to; a server needs a certificate that an authority known everywhere has signed";
                Failed::Never(refusal(format!("no safe connection to {host} ({error})"), hint))
            }
            _ => Failed::Never(refusal(format!("{host} cannot be reached ({error})"), reach)),
        }
    }
}
