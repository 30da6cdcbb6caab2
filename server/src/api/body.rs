//! An upload's body: all of it, in time, and not too much.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use plimsoll_core::measurement::TEXT;
use tokio::time::timeout;

use super::problem::Problem;

/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);

/// What is read and thrown away of a body that is too long: a client that still writes does not read the answer.
const DRAINED: usize = 4 * TEXT;

/// Whether a body may come at all, by what the headers say of it.
pub(super) fn announced(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail: String| {
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", "A record is JSON", detail))
    };
    // Nothing is unpacked here: what is small on the way and huge in memory stays outside.
    let packed =
        headers.get(header::CONTENT_ENCODING).filter(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if packed.is_some() {
        return refuse("send it without Content-Encoding, not compressed".to_owned());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (name, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let charset = parameters.trim().to_ascii_lowercase().replace('"', "");
    if !name.trim().eq_ignore_ascii_case("application/json") || !["", "charset=utf-8"].contains(&charset.as_str()) {
        return refuse("send it with `Content-Type: application/json`".to_owned());
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > DRAINED as u64) {
        return Err(too_long());
    }
    Ok(())
}

/// The whole body.
pub(super) async fn read(body: Body) -> Result<Vec<u8>, Problem> {
    let late = |_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "late",
            "The record did not arrive in time",
            format!("it may take {} seconds", ARRIVAL.as_secs()),
        )
    };
    timeout(ARRIVAL, collect(body)).await.map_err(late)?
}

async fn collect(mut body: Body) -> Result<Vec<u8>, Problem> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(TEXT).min(TEXT);
    let mut content = Vec::with_capacity(expected);
    let mut length = 0usize;
    while let Some(frame) = body.frame().await {
        let broken = |_| Problem::new(StatusCode::BAD_REQUEST, "body", "The body broke off", "send the whole record");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        length = length.saturating_add(data.len());
        if length <= TEXT {
            content.extend_from_slice(&data);
        } else {
            content = Vec::new();
            if length > DRAINED {
                break;
            }
        }
    }
    if length > TEXT { Err(too_long()) } else { Ok(content) }
}

fn too_long() -> Problem {
    let detail = format!("more than {TEXT} bytes are no record; give one that plimsoll probe wrote, and nothing else");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", "The record is too long", detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn told(pairs: &[(header::HeaderName, &'static str)]) -> StatusCode {
        let headers = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        announced(&headers).map_or_else(|problem| problem.status(), |()| StatusCode::OK)
    }

    #[test]
    fn only_plain_json_of_a_records_size() {
        let json = || (header::CONTENT_TYPE, "application/json");
        assert_eq!(told(&[json()]), StatusCode::OK);
        assert_eq!(told(&[(header::CONTENT_TYPE, "Application/JSON; charset=\"UTF-8\"")]), StatusCode::OK);
        assert_eq!(told(&[json(), (header::CONTENT_ENCODING, "identity")]), StatusCode::OK);
        for coding in ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"] {
            assert_eq!(
                told(&[json(), (header::CONTENT_ENCODING, coding)]),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{coding}"
            );
        }
        for kind in ["text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", ""] {
            assert_eq!(told(&[(header::CONTENT_TYPE, kind)]), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        }
        assert_eq!(told(&[]), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(told(&[json(), (header::CONTENT_LENGTH, "99999999999")]), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_not_kept() {
        assert_eq!(read(Body::from(vec![b'x'; TEXT])).await.unwrap().len(), TEXT);
        for length in [TEXT + 1, DRAINED + 1] {
            let problem = read(Body::from(vec![b'x'; length])).await.unwrap_err();
            assert_eq!(problem.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
