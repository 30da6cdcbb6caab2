//! The foot of the page.

use leptos::prelude::*;

/// Where the documents are.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

#[component]
pub fn Footer() -> impl IntoView {
    view! {
        <footer class="foot">
            <p>
                "Plimsoll executes the training step with tensors that have a size but no contents, under PyTorch's own rules for what keeps what alive. Nothing leaves this page."
            </p>
            <ul>
                <li><a href=format!("{DOCS}how-it-works.md")>"How it works"</a></li>
                <li><a href=format!("{DOCS}accuracy.md")>"Accuracy"</a></li>
                <li>"Version " {env!("CARGO_PKG_VERSION")}</li>
            </ul>
        </footer>
    }
}
