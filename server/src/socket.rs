//! The listening socket: binding it, serving on it, leaving in good order.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::HttpBody as _, middleware};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use crate::{
    Api, Site,
    api::Peer,
    app,
    host::{self, Names},
    patient::Patient,
    places::{Limits, Places},
};

/// Where `plimsoll serve` listens unless told otherwise: this machine only.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

/// How long a client may take to send a request's head, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long running responses may take once the server was told to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no server: what is wrong, and with [`ServeError::hint`] what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The binary holds no planner.
    #[error("this plimsoll was built without the planner")]
    NoPlanner,
    /// Another Plimsoll has the address.
    #[error("a Plimsoll is already serving at http://{0}/")]
    AlreadyServing(SocketAddr),
    /// Another program has the address.
    #[error("port {} of {} is taken by another program", .0.port(), .0.ip())]
    Taken(SocketAddr),
    /// The address cannot be had for another reason.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, #[source] io::Error),
}

impl ServeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        let other = |a: &SocketAddr| SocketAddr::new(a.ip(), a.port().checked_add(1).unwrap_or(0));
        match self {
            Self::NoPlanner => {
                "in a checkout of the project, `cargo xtask serve` builds the planner and serves it".to_owned()
            }
            Self::AlreadyServing(a) => format!("open that; or stop it; or take another port: --listen {}", other(a)),
            Self::Taken(a) => format!("stop that program, or take another port: --listen {}", other(a)),
            Self::Bind(_, error) => match error.kind() {
                io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: take a higher one with --listen",
                io::ErrorKind::AddrNotAvailable => "that is no address of this machine: --listen 127.0.0.1:7070 is",
                _ => "give another address with --listen",
            }
            .to_owned(),
        }
    }
}

/// Connections that may be open at a time; who comes then takes the place of one that stands still.
const CONNECTIONS: usize = 1024;

/// Of these, how many one address may have. A browser opens six; a house full of them shares one address.
const OF_ONE: usize = 256;

/// Open files that are no connections: the database's, its log, the standard streams.
const FILES: u64 = 64;

/// How long a client may take nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves `site` and `api` on `listen` until `stop` resolves, then lets running responses finish. `ready` is told the address
/// once the socket listens; port 0 lets the system choose one.
///
/// # Errors
/// There is neither a planner nor an API, or the address cannot be had.
pub async fn serve(
    listen: SocketAddr,
    site: Site,
    api: Option<Arc<Api>>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    if site.is_empty() && api.is_none() {
        return Err(ServeError::NoPlanner);
    }
    let (listener, address) = bind(listen).await?;
    ready(address);
    let proxies = api.as_ref().map_or(0, |api| api.proxies());
    // Without measurements there is nothing that others may not see.
    let names = api.as_ref().map_or(Names::Any, |api| api.names());
    let app = app(site, api).layer(middleware::from_fn_with_state(names, host::check));
    let places = Places::new(Limits { all: connections(), each: OF_ONE }, proxies == 0);
    accept(listener, app, &places, stop).await;
    Ok(())
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = async {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    match bound.await {
        Ok(bound) => Ok(bound),
        Err(source) => Err(explain(listen, source).await),
    }
}

async fn explain(address: SocketAddr, error: io::Error) -> ServeError {
    if error.kind() != io::ErrorKind::AddrInUse {
        ServeError::Bind(address, error)
    } else if is_plimsoll(address).await {
        ServeError::AlreadyServing(address)
    } else {
        ServeError::Taken(address)
    }
}

/// Whether a Plimsoll answers at this address.
async fn is_plimsoll(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").await.ok()?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer).await.ok()?;
        String::from_utf8(answer).ok()
    };
    timeout(Duration::from_millis(500), ask)
        .await
        .ok()
        .flatten()
        .is_some_and(|text| text.contains("\r\n\r\nok plimsoll "))
}

/// As many connections as the system lets us have open: beyond that, accepting fails and nobody is let in.
#[cfg(unix)]
fn connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = CONNECTIONS as u64 + FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let mut allowed = current.unwrap_or(u64::MAX);
    if allowed < wanted {
        let more = maximum.unwrap_or(u64::MAX).min(wanted);
        // Refused, it stays as it is.
        if setrlimit(Resource::Nofile, Rlimit { current: Some(more), maximum }).is_ok() {
            allowed = more;
        }
    }
    usize::try_from(allowed.saturating_sub(FILES)).unwrap_or(CONNECTIONS).clamp(8, CONNECTIONS)
}

#[cfg(not(unix))]
fn connections() -> usize {
    CONNECTIONS
}

/// axum's own loop has no limit on how long a client may take over a request's head, nor over an answer, so this one is
/// ours.
async fn accept(listener: TcpListener, app: Router, places: &Arc<Places>, stop: impl Future<Output = ()>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let open = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of file descriptors, or a client that is already gone: neither ends the server.
                Err(_) => {
                    places.dismiss();
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        let place = tokio::select! {
            () = &mut stop => break,
            place = places.take(peer.ip()) => place,
        };
        // Of an address that has more than its share.
        let Some(place) = place else { continue };
        // Small responses leave at once.
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(place.state());
        let stream = Patient::new(stream, WRITE_TIMEOUT, Arc::clone(&state));
        let app = app.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            state.request();
            request.extensions_mut().insert(Peer(peer));
            request.extensions_mut().insert(Arc::clone(&state));
            // Of one with a body it is not our work that is waited for, until it has come.
            let working = request.body().is_end_stream().then(|| state.working());
            let answer = app.clone().oneshot(request);
            async move {
                let answer = answer.await;
                drop(working);
                answer
            }
        });
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            tokio::select! {
                // A client that breaks off or sends nonsense is its own affair.
                _ = connection => {}
                () = place.wanted() => {}
            }
        });
    }
    drop(listener);
    let _ = timeout(STOP_TIMEOUT, open.shutdown()).await;
}

/// Resolves when the process is asked to end: Ctrl-C, or SIGTERM where there is one. It listens from the call on, not
/// only once it is polled; a process that is told to end before that dies of the signal. Needs a tokio runtime.
#[cfg(unix)]
pub fn stop_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{Signal, SignalKind, signal};
    async fn next(signal: io::Result<Signal>) {
        match signal {
            Ok(mut signal) => {
                signal.recv().await;
            }
            // No handler could be installed: the system's default action still ends the process.
            Err(_) => std::future::pending().await,
        }
    }
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async {
        tokio::select! {
            () = next(interrupt) => {}
            () = next(terminate) => {}
        }
    }
}

/// Resolves when the process is asked to end with Ctrl-C.
#[cfg(not(unix))]
pub async fn stop_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        // No handler could be installed: the system's default action still ends the process.
        std::future::pending::<()>().await;
    }
}
