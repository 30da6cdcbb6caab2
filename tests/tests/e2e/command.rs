//! What WebDriver's standard leaves to the drivers: Chromium's own commands.

use fantoccini::{Client, wd::WebDriverCompatibleCommand};
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// One command of chromedriver's own, sent to the session.
#[derive(Debug)]
struct Vendor {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Vendor {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// A method of the Chrome DevTools Protocol.
pub async fn devtools(client: &Client, method: &str, params: Value) -> anyhow::Result<Value> {
    let body = json!({ "cmd": method, "params": params });
    Ok(client.issue_cmd(Vendor { path: "goog/cdp/execute", body }).await?)
}

/// What has come to the browser's console since this was last asked.
pub async fn console(client: &Client) -> anyhow::Result<Vec<Value>> {
    let entries = client.issue_cmd(Vendor { path: "se/log", body: json!({ "type": "browser" }) }).await?;
    Ok(entries.as_array().cloned().unwrap_or_default())
}

/// Lets the page read the clipboard.
pub async fn permit_clipboard(client: &Client) -> anyhow::Result<()> {
    let body = json!({ "descriptor": { "name": "clipboard-read" }, "state": "granted" });
    client.issue_cmd(Vendor { path: "permissions", body }).await?;
    Ok(())
}
