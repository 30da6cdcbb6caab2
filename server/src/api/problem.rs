//! Refusals a program can read and a person can act on: `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_core::Error;
use serde_json::{Value, json};

use crate::store::StoreError;

/// Most single errors of one refusal.
const ERRORS: usize = 50;

/// Longest text of a refusal, in characters: what was sent may be repeated in it.
const TEXT: usize = 500;

/// Why a request was not answered as asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Ends the `type`.
    kind: &'static str,
    title: &'static str,
    detail: String,
    errors: Vec<Error>,
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, title, detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    /// With everything that is wrong, one by one; the first of them is the detail.
    pub(crate) fn with(mut self, errors: Vec<Error>) -> Self {
        if let Some(first) = errors.first() {
            let more = match errors.len() - 1 {
                0 => String::new(),
                n => format!(" (and {n} more)"),
            };
            self.detail = format!("{}{more}", short(&first.to_string()));
        }
        self.errors = errors;
        self
    }

    /// To be tried again after so many seconds.
    pub(crate) fn later(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// A query that cannot be answered.
    pub(crate) fn query(key: &str, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "query", "The query cannot be answered", "")
            .with(vec![Error::new(key, problem, hint)])
    }

    /// There is nothing at that address.
    pub(crate) fn nothing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing here", detail)
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    fn body(&self) -> Value {
        let mut body = json!({
            "type": format!("urn:plimsoll:problem:{}", self.kind),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.errors.is_empty() {
            let errors = self.errors.iter().take(ERRORS);
            body["errors"] = errors
                .map(|e| {
                    let mut error = json!({"key": short(&e.key), "problem": short(&e.problem), "hint": short(&e.hint)});
                    if let Some(reason) = e.reason {
                        error["reason"] = reason.as_str().into();
                    }
                    error
                })
                .collect();
        }
        body
    }
}

/// At most [`TEXT`] characters.
fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"plimsoll\""));
        }
        response
    }
}

/// What the database says is for those who run the server; others are told that it is not their fault.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        eprintln!("plimsoll serve: {error}; {}", error.hint());
        match error {
            StoreError::Full => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "full",
                "The server's disk is full",
                "nothing of this request was kept; what was acknowledged before is safe. Try again once whoever runs \
                 the server has made room",
            )
            .later(60),
            StoreError::Away(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "database",
                "The server's database does not answer",
                "try again later",
            )
            .later(5),
            StoreError::Gone(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "gone",
                "The server's database was taken away",
                "nothing of this request was kept; whoever runs the server has to put its file back. Try again later",
            )
            .later(60),
            StoreError::Damaged(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "damaged",
                "The server's database is damaged",
                "nothing of this request was kept, and nothing is until whoever runs the server has put back a copy or \
                 saved what can be read; its output tells how",
            )
            .later(3600),
            StoreError::Failed(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "database",
                "The server's database failed",
                "whoever runs the server finds the reason in its output",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_one_by_one_and_briefly() {
        let long = "x".repeat(10_000);
        let errors: Vec<Error> = (0..80).map(|n| Error::new(format!("a[{n}]"), long.clone(), "fix it")).collect();
        let body = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "record", "Bad record", "").with(errors).body();
        assert_eq!((body["status"].as_u64(), body["title"].as_str()), (Some(422), Some("Bad record")));
        assert!(body["detail"].as_str().unwrap().starts_with("a[0]: xxx"), "{body}");
        assert!(body["detail"].as_str().unwrap().ends_with("(and 79 more)"));
        assert_eq!(body["errors"].as_array().unwrap().len(), ERRORS);
        assert_eq!(body["errors"][1]["hint"], "fix it");
        assert!(body.to_string().len() < ERRORS * 600);
    }

    #[test]
    fn a_full_disk_is_507_and_may_be_tried_again() {
        let response = Problem::from(StoreError::Full).into_response();
        assert_eq!(response.status(), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "60");
        let away = Problem::from(StoreError::Away("secret host".into()));
        assert_eq!(away.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(!away.body().to_string().contains("secret host"));
    }
}
