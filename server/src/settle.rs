//! An answer that was given before the request's body was read leaves the connection in no state to go on: what still
//! comes is taken and thrown away while that is little, and else the client is told that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

/// What is taken of a body that nobody reads, in bytes: a usual record. A client that writes more is told to end.
const TAKEN: usize = 1 << 20;

/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(1);

/// A body that can be taken back from whoever did not read it.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Body>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}

/// Sees to it that a connection is either at the next request or said to end.
pub(crate) async fn settle(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let mut body = Shared(Arc::new(Mutex::new(body)));
    let mut response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    let announced = body.size_hint().lower();
    let drained = timeout(PATIENCE, async {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.ok()?.into_data().map_or(0, |data| data.len());
            if length > TAKEN {
                return None;
            }
        }
        Some(())
    });
    if announced > TAKEN as u64 || !matches!(drained.await, Ok(Some(()))) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
