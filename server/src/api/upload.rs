//! `POST /api/v1/measurements`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_core::measurement::Standing;
use plimsoll_core::{Error, Measurement};
use serde_json::json;
use tokio::time::timeout;

use crate::places::State;
use crate::store::Entry;

use super::access::{Access, Sender};
use super::problem::Problem;
use super::rate::Caller;
use super::{Api, Peer, body, json_response};

/// How long an upload may wait for its turn.
const TURN: Duration = Duration::from_secs(10);

pub(super) async fn upload(Shared(api): Shared<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let (parts, content) = request.into_parts();
    let (caller, token) = admitted(&api, &parts).await?;
    body::announced(&parts.headers)?;
    let busy = || {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "The server has its hands full",
            "try again in some seconds",
        )
        .later(5)
    };
    let _turn = timeout(TURN, api.uploads.acquire()).await.ok().and_then(Result::ok).ok_or_else(busy)?;
    let text = body::read(content).await?;
    // From here on it is our work that the client waits for.
    let _working = parts.extensions.get::<Arc<State>>().map(State::working);
    let place = timeout(TURN, api.work.take(&caller)).await.ok().flatten().ok_or_else(busy)?;
    // The place goes with the work, not with the client: one that breaks off leaves the work running.
    let entry = tokio::task::spawn_blocking(move || {
        let _place = place;
        entry(&text)
    });
    let entry = entry.await;
    let failed = |_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            "The server failed",
            "please report it with the record",
        )
    };
    let entry = entry.map_err(failed)??;
    let id = entry.id.clone();
    let kept = api.store.put(entry, token).await?;
    let url = format!("/api/v1/measurements/{id}");
    let status = match kept.standing {
        Standing::Accepted => "accepted",
        Standing::Quarantined => "quarantined",
    };
    let answer = json!({"id": id, "status": status, "url": url, "reasons": kept.reasons});
    let mut response = json_response(answer.to_string());
    *response.status_mut() = if kept.new { StatusCode::CREATED } else { StatusCode::OK };
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers_mut().insert(header::LOCATION, url);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response.into_response())
}

/// Whoever may upload, and the token that lets them; each counts.
pub(super) async fn admitted(api: &Api, parts: &Parts) -> Result<(Caller, Option<String>), Problem> {
    let peer = parts.extensions.get::<Peer>().map(|peer| peer.0);
    let sender = Sender { headers: &parts.headers, uri: &parts.uri, peer, proxies: api.settings.proxies };
    let admitted = match sender.access(&api.store, api.settings.local).await? {
        Access::Token(id) => {
            within_rate(api, Caller::Token(id.clone()))?;
            (Caller::Token(id.clone()), Some(id))
        }
        Access::Local => {
            within_rate(api, sender.caller())?;
            (sender.caller(), None)
        }
        Access::Refused(problem) => {
            // Counted too: guessing is not for free.
            within_rate(api, sender.caller())?;
            return Err(problem);
        }
    };
    Ok(admitted)
}

fn within_rate(api: &Api, caller: Caller) -> Result<(), Problem> {
    let rate = match caller {
        Caller::Token(_) => &api.tokens,
        Caller::Peer(_) => &api.peers,
    };
    rate.count(caller, Instant::now()).map_err(|wait| {
        let seconds = wait.as_secs_f64().ceil() as u64;
        let detail = format!("try again in {} s", seconds.max(1));
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", "Too many uploads", detail).later(seconds)
    })
}

/// What is to be kept of a body, or everything that is wrong with it.
fn entry(body: &[u8]) -> Result<Entry, Problem> {
    let no_json = |problem: &str| {
        let error = Error::new("record", problem, "send the record as plimsoll probe wrote it");
        Problem::new(StatusCode::BAD_REQUEST, "json", "That is no JSON", "").with(vec![error])
    };
    let text = std::str::from_utf8(body).map_err(|_| no_json("it is not UTF-8 text"))?;
    let refused = |errors: Vec<Error>| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "record", "That is no measurement record", "").with(errors)
    };
    let record = Measurement::from_json(text).map_err(|error| {
        let syntax = error.key == "record" && error.problem.starts_with("not valid JSON");
        if syntax { no_json(&error.problem) } else { refused(vec![error]) }
    })?;
    Entry::new(&record).map_err(refused)
}
