//! The words of the page: what each means, and the way from where it stands to that.

use leptos::html::Details;
use leptos::prelude::*;
use plimsoll_web::glossary::WORDS;

use super::browser;

/// The section's id.
const ID: &str = "words";

/// The fold that holds them.
#[derive(Clone, Copy)]
pub struct Glossary(NodeRef<Details>);

impl Glossary {
    /// Closed.
    pub fn new() -> Self {
        Self(NodeRef::new())
    }

    /// Opens it at a word.
    fn show(self, word: &str) {
        if let Some(fold) = self.0.get_untracked() {
            fold.set_open(true);
        }
        browser::focus(&id(word));
    }
}

fn id(word: &str) -> String {
    format!("{ID}-{}", word.replace([' ', ','], "-"))
}

/// A word that leads to what it means, under the name it has there.
#[component]
pub fn Term(
    /// As the glossary has it.
    word: &'static str,
    /// As it stands here.
    #[prop(into)]
    text: Signal<&'static str>,
) -> impl IntoView {
    let glossary: Glossary = expect_context();
    let meaning = WORDS.iter().find(|entry| entry.word == word).map(|entry| entry.meaning);
    view! {
        <button type="button" class="term" title=meaning on:click=move |_| glossary.show(word)>
            {text}
        </button>
    }
}

#[component]
pub fn Words() -> impl IntoView {
    let Glossary(fold) = expect_context();
    view! {
        <section class="section" aria-labelledby="words-title">
            <details class="more" node_ref=fold data-testid="words">
                <summary id="words-title">"The words of this page"</summary>
                <dl class="glossary">
                    {WORDS
                        .iter()
                        .map(|entry| {
                            view! {
                                <div id=id(entry.word) tabindex="-1">
                                    <dt>{entry.word}</dt>
                                    <dd>{entry.meaning}</dd>
                                </div>
                            }
                        })
                        .collect_view()}
                </dl>
            </details>
        </section>
    }
}
