//! The router, asked without a socket.
#![allow(clippy::unwrap_used, reason = "a helper that fails, fails the test")]

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use plimsoll_server::{File, Site, app};
use tower::ServiceExt as _;

const JS: &str = "/planner-21ff04b3bd8e7f04.js";
const WASM: &str = "/planner-21ff04b3bd8e7f04.wasm";
const INDEX: &str = "<!doctype html><script type=module src=start.js></script>";

fn site() -> Site {
    Site::new([
        File::new("index.html", INDEX.as_bytes()),
        File::new(&JS[1..], b"let plimsoll = 'a line on a hull'".as_slice()),
        File::new(format!("{}.br", &JS[1..]), b"brotli".as_slice()),
        File::new(format!("{}.gz", &JS[1..]), b"gzipped".as_slice()),
        File::new(&WASM[1..], b"\0asm".as_slice()),
        File::new("theme.js", b"1".as_slice()),
    ])
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

async fn ask_site(site: Site, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = app(site, None).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

async fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask_site(site(), method, path, headers).await
}

#[tokio::test]
async fn the_page_is_asked_for_again_each_time() {
    for path in ["/", "/index.html"] {
        let answer = ask("GET", path, &[]).await;
        assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, INDEX.as_bytes()));
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
}

#[tokio::test]
async fn what_has_a_hash_in_its_name_is_kept_for_ever() {
    let answer = ask("GET", WASM, &[]).await;
    assert_eq!(answer.header("content-type"), "application/wasm");
    assert_eq!(answer.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(ask("GET", "/theme.js", &[]).await.header("cache-control"), "no-cache");
}

#[tokio::test]
async fn compressed_forms_are_negotiated_and_tagged_apart() {
    let mut tags = Vec::new();
    for (accept, encoding, body) in [
        ("gzip, deflate, br, zstd", "br", b"brotli".as_slice()),
        ("gzip", "gzip", b"gzipped"),
        ("", "", b"let plimsoll = 'a line on a hull'"),
    ] {
        let answer = ask("GET", JS, &[("accept-encoding", accept)]).await;
        assert_eq!((answer.header("content-encoding"), answer.body.as_slice()), (encoding, body));
        assert_eq!(answer.header("content-length"), body.len().to_string());
        assert_eq!(answer.header("vary"), "accept-encoding");
        assert_eq!(answer.header("content-type"), "text/javascript; charset=utf-8");
        tags.push(answer.header("etag").to_owned());
    }
    tags.dedup();
    assert_eq!(tags.len(), 3);
    // What is stored in one form only does not vary.
    assert_eq!(ask("GET", WASM, &[("accept-encoding", "br")]).await.header("vary"), "");
}

#[tokio::test]
async fn etags_are_sha256_and_save_the_body() {
    let answer = ask("GET", "/theme.js", &[]).await;
    // printf 1 | sha256sum
    let tag = "\"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b\"";
    assert_eq!(answer.header("etag"), tag);
    for list in [tag.to_owned(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".into()] {
        let answer = ask("GET", "/theme.js", &[("if-none-match", &list)]).await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::NOT_MODIFIED, 0), "{list}");
        assert_eq!((answer.header("etag"), answer.header("cache-control")), (tag, "no-cache"));
    }
    assert_eq!(ask("GET", "/theme.js", &[("if-none-match", "\"other\"")]).await.status, StatusCode::OK);
    // The tag of one form does not stand for another.
    let plain = ask("GET", JS, &[]).await;
    let tag = plain.header("etag");
    assert_eq!(ask("GET", JS, &[("if-none-match", tag), ("accept-encoding", "br")]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let get = ask("GET", JS, &[("accept-encoding", "br")]).await;
    let head = ask("HEAD", JS, &[("accept-encoding", "br")]).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.headers, get.headers);
}

#[tokio::test]
async fn other_methods_are_refused() {
    for (method, path) in [("POST", "/"), ("DELETE", JS), ("PUT", "/nowhere"), ("OPTIONS", "/"), ("POST", "/healthz")] {
        let answer = ask(method, path, &[]).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        let allow = answer.header("allow");
        assert!(allow.contains("GET") && allow.contains("HEAD") && !allow.contains("POST"), "{allow}");
    }
}

#[tokio::test]
async fn routes_get_the_page_and_missing_parts_do_not() {
    let html = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for path in ["/compare", "/a/b", "/?model=llama-3.2-1b&gpu=rtx-5070-ti"] {
        assert_eq!(ask("GET", path, &html).await.body, INDEX.as_bytes(), "{path}");
    }
    for path in ["/planner-0000000000000000.js", "/a/b.css", "/favicon.ico", "/%2e%2e/Cargo.toml", "/../Cargo.toml"] {
        assert_eq!(ask("GET", path, &html).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(ask("GET", "/compare", &[("accept", "*/*")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(ask("GET", "/compare", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn paths_are_decoded_once() {
    assert_eq!(ask("GET", "/%74heme.js", &[]).await.status, StatusCode::OK);
    assert_eq!(ask("GET", "/%2574heme.js", &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(ask("GET", "/%ff%00", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_response_carries_the_policy() {
    for (method, path) in [("GET", "/"), ("GET", JS), ("GET", "/missing.js"), ("POST", "/"), ("GET", "/healthz")] {
        let answer = ask(method, path, &[]).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{method} {path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert!(answer.header("permissions-policy").contains("camera=()"));
        let csp = answer.header("content-security-policy");
        assert!(
            csp.starts_with("default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "),
            "{csp}"
        );
        for rule in ["object-src 'none'", "base-uri 'self'", "frame-ancestors 'none'"] {
            assert!(csp.contains(rule), "{csp}");
        }
        assert!(!csp.contains("unsafe-inline") && !csp.contains("'unsafe-eval'") && !csp.contains("sha256"), "{csp}");
    }
}

#[tokio::test]
async fn health_says_who_answers() {
    let answer = ask("GET", "/healthz", &[]).await;
    assert_eq!((answer.status, answer.header("cache-control")), (StatusCode::OK, "no-store"));
    assert!(answer.body.starts_with(b"ok plimsoll "));
}

#[tokio::test]
async fn without_a_planner_it_says_so_and_how_to_get_one() {
    let answer = ask_site(Site::new([]), "GET", "/", &[("accept", "text/html")]).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let said = String::from_utf8(answer.body).unwrap();
    for way in ["cargo install --path probe --locked", "cargo xtask serve", "--planner"] {
        assert!(said.contains(way), "{said}");
    }
}

#[tokio::test]
async fn a_planner_in_a_folder_is_read_as_it_lies_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("fonts/more")).unwrap();
    for (name, content) in [("index.html", INDEX), ("fonts/more/a.woff2", "font"), ("theme.js", "1"), (".hidden", "")] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    for (path, expected) in [("/", INDEX), ("/fonts/more/a.woff2", "font"), ("/theme.js", "1")] {
        assert_eq!(ask_site(Site::read(folder.path()).unwrap(), "GET", path, &[]).await.body, expected.as_bytes());
    }
    let hidden = ask_site(Site::read(folder.path()).unwrap(), "GET", "/.hidden", &[]).await;
    assert_eq!(hidden.status, StatusCode::NOT_FOUND);
    assert!(Site::read(&folder.path().join("nowhere")).is_err());
}
