//! The listening socket: binding it, serving on it, leaving in good order.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use crate::{Api, Site, api::Peer, app};

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

/// Connections that may be open at a time; who comes then, waits.
const CONNECTIONS: usize = 1024;

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
    accept(listener, app(site, api), stop).await;
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

/// axum's own loop has no limit on how long a client may take over a request's head, so this one is ours.
async fn accept(listener: TcpListener, app: Router, stop: impl Future<Output = ()>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let open = GracefulShutdown::new();
    let mut stop = pin!(stop);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = tokio::select! {
            () = &mut stop => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let (stream, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of file descriptors, or a client that is already gone: neither ends the server.
                Err(_) => {
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        // Small responses leave at once.
        let _ = stream.set_nodelay(true);
        let service = app.clone().map_request(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(Peer(peer));
            request
        });
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = open.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off or sends nonsense is its own affair.
            let _ = connection.await;
            drop(place);
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
