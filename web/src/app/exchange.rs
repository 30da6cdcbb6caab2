//! What people have in hand, and what they take along: configurations of other tools, and the run as one of them or as code.

use leptos::prelude::*;
use plimsoll_core::Error;
use plimsoll_core::exchange::{Form, Imported, MOST_BYTES, Outcome, Part, Source, read, read_for, write};
use wasm_bindgen::prelude::*;

use super::answer::Answer;
use super::browser;
use super::planner::{Planner, in_full};

/// What was pasted or dropped last, and what came of it.
#[derive(Clone, Copy)]
pub struct Given {
    text: RwSignal<String>,
    read: RwSignal<Option<Imported>>,
    fault: RwSignal<Option<Error>>,
}

impl Default for Given {
    fn default() -> Self {
        Self { text: RwSignal::new(String::new()), read: RwSignal::new(None), fault: RwSignal::new(None) }
    }
}

impl Given {
    /// Reads a file that was dropped, if it is one of another tool; whether it is.
    pub fn take(self, planner: Planner, name: &str, content: &str) -> bool {
        let source = Source { name: name.to_owned(), text: content.to_owned() };
        let known = read(std::slice::from_ref(&source), None).is_ok_and(|imported| {
            // A model's own config is taken where configs are.
            imported.parts.iter().any(|part| !part.keys.is_empty())
        });
        if known {
            self.text.set(content.to_owned());
            self.lay(planner, &source);
            browser::focus("exchange-title");
        }
        known
    }

    /// Lays what a text says over the present run.
    fn lay(self, planner: Planner, source: &Source) {
        let now = planner.scenario.get_untracked();
        let gpus = Some(now.parallel.gpus).filter(|gpus| *gpus > 1);
        let imported = read_for(std::slice::from_ref(source), gpus, now.to_value().get("model"));
        match imported {
            Ok(imported) => {
                let next = imported.over(&now);
                self.read.set(Some(imported));
                match next {
                    Ok(next) => {
                        self.fault.set(None);
                        planner.set(next);
                    }
                    Err(fault) => self.fault.set(Some(fault)),
                }
            }
            Err(fault) => {
                self.read.set(None);
                self.fault.set(Some(fault));
            }
        }
    }
}

/// The section of the page.
#[component]
pub fn Exchange() -> impl IntoView {
    view! {
        <section class="section exchange" aria-labelledby="exchange-title" data-testid="exchange">
            <header class="section-head">
                <h2 id="exchange-title" tabindex="-1">"Bring and take"</h2>
                <p>
                    "Configurations of the tools you train with are read here, and this run is written as one of theirs, or as code; its answer as a note or a picture."
                </p>
            </header>
            <Bring/>
            <Take/>
            <Answer/>
        </section>
    }
}

#[component]
fn Bring() -> impl IntoView {
    let planner = Planner::get();
    let given: Given = expect_context();
    let lay = move || {
        let text = given.text.get_untracked();
        given.lay(planner, &Source { name: String::new(), text });
    };
    let opened = move |event: web_sys::Event| {
        let input = event.target().and_then(|t| t.dyn_into::<web_sys::HtmlInputElement>().ok());
        let Some(file) = input.as_ref().and_then(web_sys::HtmlInputElement::files).and_then(|files| files.get(0))
        else {
            return;
        };
        let name = file.name();
        if file.size() > MOST_BYTES as f64 {
            let problem = format!("{name} is too long to be a configuration");
            given.fault.set(Some(Error::new("from", problem, "choose the configuration alone")));
            return;
        }
        let done = Closure::once(move |content: JsValue| {
            let text = content.as_string().unwrap_or_default();
            given.text.set(text.clone());
            given.lay(planner, &Source { name, text });
        });
        let _ = js_sys::Promise::from(JsValue::from(file.text())).then(&done);
        done.forget();
    };
    view! {
        <div class="field" class:has-error=move || given.fault.with(Option::is_some)>
            <label for="exchange-text">"A configuration, a Python cell or a command line"</label>
            <textarea
                id="exchange-text"
                data-testid="exchange-text"
                rows="6"
                spellcheck="false"
                autocomplete="off"
                aria-describedby="exchange-help exchange-error"
                placeholder="base_model: Qwen/Qwen3-8B\nadapter: qlora\nmicro_batch_size: 2\n…"
                prop:value=move || given.text.get()
                on:input:target=move |event| given.text.set(event.target().value())
            ></textarea>
            <p class="help" id="exchange-help">
                "TrainingArguments, SFTConfig, DPOConfig and LoraConfig in Python or JSON; Accelerate, DeepSpeed, Axolotl, LLaMA-Factory, "
                "torchtune, torchtitan, Lightning, Unsloth, ms-swift, a gpu_optimization block. Nothing is run and nothing leaves this page."
            </p>
            <div class="exchange-actions">
                <button type="button" class="take" data-testid="exchange-read" on:click=move |_| lay()>
                    "read it"
                </button>
                <label for="exchange-file">"or a file:"</label>
                <input id="exchange-file" data-testid="exchange-file" type="file" on:change=opened/>
            </div>
            <p class="error" id="exchange-error" role="alert" data-testid="exchange-error">
                {move || {
                    given
                        .fault
                        .get()
                        .map(|fault| view! { <code>{fault.key.clone()}</code> ": " {in_full(&fault)} })
                }}
            </p>
        </div>
        <div data-testid="exchange-report" role="status">
            {move || given.read.get().map(|imported| report(&imported))}
        </div>
    }
}

/// What came of every key.
fn report(imported: &Imported) -> impl IntoView + use<> {
    let parts = imported.parts.iter().map(part).collect_view();
    let remarks = imported.remarks.iter().map(|remark| view! { <li>{remark.clone()}</li> }).collect_view();
    view! {
        {parts}
        <ul class="help">{remarks}</ul>
    }
}

fn part(part: &Part) -> impl IntoView + use<> {
    let lists = [
        (Outcome::Taken, "taken"),
        (Outcome::NotEstimated, "not estimated"),
        (Outcome::Wrong, "wrong"),
        (Outcome::Unknown, "not known"),
        (Outcome::NoMemory, "no memory"),
    ];
    let rows = lists
        .into_iter()
        .filter_map(|(outcome, label)| {
            let keys: Vec<String> = part
                .keys
                .iter()
                .filter(|key| key.outcome == outcome && !key.key.is_empty())
                .map(|key| match outcome {
                    Outcome::Taken => format!("{} = {}", key.key, key.value),
                    Outcome::NotEstimated | Outcome::Wrong => format!("{} = {} ({})", key.key, key.value, key.why),
                    Outcome::NoMemory | Outcome::Unknown => key.key.clone(),
                })
                .collect();
            (!keys.is_empty()).then(|| view! { <dt>{label}</dt> <dd>{keys.join(", ")}</dd> })
        })
        .collect_view();
    let file = if part.file.is_empty() { String::new() } else { format!("{}: ", part.file) };
    view! {
        <div class="exchange-part">
            <h4>{file} {part.tool}</h4>
            <dl>{rows}</dl>
        </div>
    }
}

#[component]
fn Take() -> impl IntoView {
    let planner = Planner::get();
    let form = RwSignal::new(None::<Form>);
    let copied = RwSignal::new(false);
    let written =
        Memo::new(move |_| form.get().map(|form| planner.below.scenario.with(|scenario| write(scenario, form))));
    let text = move || written.get_untracked().and_then(Result::ok).unwrap_or_default();
    let copy = move |_| {
        browser::copy(&text(), move |done| {
            copied.set(done);
            browser::after(1800, move || copied.set(false));
        });
    };
    view! {
        <div class="field">
            <label for="exchange-form">"Write this run as"</label>
            <select
                id="exchange-form"
                data-testid="exchange-form"
                on:change:target=move |event| form.set(Form::parse(&event.target().value()))
            >
                <option value="">"choose a form"</option>
                {Form::ALL
                    .iter()
                    .map(|form| {
                        let word = form.in_words();
                        view! { <option value=word.key title=word.about>{word.label}</option> }
                    })
                    .collect_view()}
            </select>
        </div>
        {move || {
            written
                .get()
                .map(|written| match written {
                    Ok(text) => {
                        let name = form.get_untracked().map_or("run.txt", Form::file);
                        let address = format!("data:text/plain;charset=utf-8,{}", js_sys::encode_uri_component(&text));
                        view! {
                            <div class="exchange-actions">
                                <button type="button" class="tool" data-testid="exchange-copy" on:click=copy>
                                    {move || if copied.get() { "Copied" } else { "Copy" }}
                                </button>
                                <a class="tool" download=name href=address data-testid="exchange-save">
                                    "Save as " {name}
                                </a>
                            </div>
                            <pre tabindex="0" role="region" aria-label="The run, written" data-testid="exchange-code">{text}</pre>
                        }
                            .into_any()
                    }
                    Err(fault) => {
                        view! {
                            <p class="error" role="alert" data-testid="exchange-refused">
                                <code>{fault.key.clone()}</code>
                                ": "
                                {in_full(&fault)}
                            </p>
                        }
                            .into_any()
                    }
                })
        }}
    }
}
