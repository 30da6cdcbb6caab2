//! A memory snapshot of a real run, opened or dropped, over the estimate of the present scenario. The file stays in the browser.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use plimsoll_core::estimate::Against;
use plimsoll_core::snapshot::FIRST;
use plimsoll_core::{Error, shown};
use plimsoll_web::number;
use plimsoll_web::snapshot::{Lines, MOST_BYTES, Opened, pair, requests};

use super::browser;
use super::hulls::content;
use super::planner::{Planner, in_full};

/// Size of the drawing; it is stretched to the width there is.
const PLOT: (f64, f64) = (600.0, 200.0);

/// Rows of the table of who holds the peak.
const MOST: usize = 10;

/// What was opened last, and why it was not.
#[derive(Clone, Copy)]
pub struct Snapped {
    opened: RwSignal<Option<Arc<Opened>>>,
    fault: RwSignal<Option<Error>>,
    reading: RwSignal<bool>,
}

impl Default for Snapped {
    fn default() -> Self {
        Self { opened: RwSignal::new(None), fault: RwSignal::new(None), reading: RwSignal::new(false) }
    }
}

impl Snapped {
    /// Reads a file and shows it, if it is a pickle; what else it is, `otherwise` reads.
    pub fn read(self, file: web_sys::File, otherwise: impl FnOnce(web_sys::File) + 'static) {
        spawn_local(async move {
            let begin = match file.slice_with_i32_and_i32(0, 1) {
                Ok(begin) => content(begin.array_buffer()).await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            if begin != [FIRST] {
                return otherwise(file);
            }
            if file.size() > MOST_BYTES as f64 {
                let hint = "record a shorter history (max_entries=100000), or use plimsoll inspect";
                self.fault.set(Some(Error::new("snapshot", "it is too large for a page", hint)));
                return browser::focus("snapshot-title");
            }
            self.reading.set(true);
            let name = file.name();
            let read = match content(file.array_buffer()).await {
                Some(bytes) => Opened::read(&name, &bytes),
                None => Err(Error::new("snapshot", "the browser cannot read it", "choose the file again")),
            };
            self.reading.set(false);
            match read {
                Ok(opened) => {
                    self.fault.set(None);
                    self.opened.set(Some(Arc::new(opened)));
                }
                // What was opened before stays.
                Err(fault) => self.fault.set(Some(Error { problem: format!("{name}: {}", fault.problem), ..fault })),
            }
            browser::focus("snapshot-title");
        });
    }
}

/// The section of the page.
#[component]
pub fn SnapshotSection() -> impl IntoView {
    let snapped: Snapped = expect_context();
    let chosen = move |event: web_sys::Event| {
        let input = event_target::<web_sys::HtmlInputElement>(&event);
        if let Some(file) = input.files().and_then(|files| files.get(0)) {
            let name = file.name();
            snapped.read(file, move |_| {
                let hint = "choose a file that torch.cuda.memory._dump_snapshot wrote";
                snapped.fault.set(Some(Error::new("snapshot", format!("{name} is no snapshot"), hint)));
            });
        }
        // The same file can be chosen again.
        input.set_value("");
    };
    view! {
        <section class="section snapshot" aria-labelledby="snapshot-title" data-testid="snapshot-section">
            <header class="section-head">
                <h2 id="snapshot-title" tabindex="-1">"A real run over it"</h2>
                <p>
                    "What PyTorch's memory snapshot says of a run: who held the peak, what lay between, and where it parts from \
                     the estimate above, request by request."
                </p>
            </header>
            <div class="field" class:has-error=move || snapped.fault.with(Option::is_some)>
                <label for="snapshot-file">
                    "A file of " <code>"torch.cuda.memory._dump_snapshot"</code> ", opened here or dropped anywhere on the page"
                </label>
                <input
                    id="snapshot-file"
                    data-testid="snapshot-file"
                    type="file"
                    accept=".pickle,.pkl"
                    aria-describedby="snapshot-help snapshot-error"
                    on:change=chosen
                />
                <p class="help" id="snapshot-help">
                    "It is read here and sent nowhere, and nothing in it is run. Three steps, recorded from the start, show all: "
                    <code>"torch.cuda.memory._record_memory_history()"</code> " before the model is made."
                </p>
                <p class="error" id="snapshot-error" role="alert" data-testid="snapshot-error">
                    {move || snapped.fault.get().map(|fault| in_full(&fault))}
                </p>
            </div>
            <p role="status">{move || snapped.reading.get().then_some("Reading the snapshot …")}</p>
            {move || snapped.opened.get().map(|opened| view! { <Shown snapped opened/> })}
        </section>
    }
}

#[component]
fn Shown(snapped: Snapped, opened: Arc<Opened>) -> impl IntoView {
    let planner = Planner::get();
    let over = opened.clone();
    // Made anew with every run that can be read, and only while a snapshot is open.
    let against = Memo::new(move |_| {
        planner.reading.track();
        let run = planner.scenario.with_untracked(plimsoll_web::engine::Run::new).ok()?;
        Some(Against::new(&run, &over.snapshot, &over.course))
    });
    let lines = {
        let opened = opened.clone();
        move || against.with(|against| Lines::new(&opened, against.as_ref(), PLOT.0, PLOT.1))
    };
    let summary = &opened.summary;
    let in_vain = summary.out_of_memory.iter().map(|vain| {
        let words = format!(
            "Out of memory: {} asked for by {}, {} left on the card, {} alive.",
            number::bytes(vain.asked),
            shown(&vain.origin()),
            number::bytes(vain.free),
            number::bytes(vain.live)
        );
        view! { <p class="beside-figures is-below">{words}</p> }
    });
    let rows = summary.holdings.iter().take(MOST).map(|held| {
        view! {
            <tr>
                <th scope="row">{shown(&held.origin())}</th>
                <td class="num">{held.count}</td>
                <td class="num">{number::bytes(held.bytes)}</td>
            </tr>
        }
    });
    let between = opened.between().into_iter().map(|(name, words)| view! { <dt>{name}</dt> <dd>{words}</dd> });
    view! {
        <div data-testid="snapshot">
            <p>{shown(&opened.about())}</p>
            {in_vain.collect_view()}
            {move || {
                against
                    .get()
                    .map(|against| {
                        view! {
                            <dl class="recorded" data-testid="snapshot-against">
                                <dt>"Allocated at most"</dt>
                                <dd>{pair(against.allocated)}</dd>
                                <dt>"Reserved at most"</dt>
                                <dd>{pair(against.reserved)}</dd>
                                <dt>"Request by request"</dt>
                                <dd>{shown(&requests(&against).join(" "))}</dd>
                            </dl>
                        }
                    })
            }}
            {move || {
                let Lines { scale, estimate, snapshot } = lines();
                let both = estimate.is_some();
                let of = if both { "the steady step" } else { "the whole history" };
                let words = format!("Live memory over {of}, up to {}", number::bytes(scale));
                view! {
                    <figure class="curves">
                        <svg
                            viewBox=format!("0 0 {} {}", PLOT.0, PLOT.1)
                            preserveAspectRatio="none"
                            width="100%"
                            height=PLOT.1
                            role="img"
                            aria-label=words.clone()
                        >
                            {estimate
                                .map(|d| view! { <path class="curve curve-0" d=d vector-effect="non-scaling-stroke"/> })}
                            <path class="curve curve-1" d=snapshot vector-effect="non-scaling-stroke"/>
                        </svg>
                        <figcaption>
                            {words} ". " {both.then(|| view! { <Key class="curve curve-0"/> " estimate, " })}
                            <Key class="curve curve-1"/> " snapshot."
                        </figcaption>
                    </figure>
                }
            }}
            <h3>"Who holds the peak"</h3>
            <table class="figures-table" data-testid="snapshot-holders">
                <caption class="unseen">"Who holds the peak, by the line that asked"</caption>
                <thead>
                    <tr>
                        <th scope="col">"asked for by"</th>
                        <th scope="col" class="num">"tensors"</th>
                        <th scope="col" class="num">"memory"</th>
                    </tr>
                </thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
            <h3>"When it was taken"</h3>
            <dl class="recorded">{between.collect_view()}</dl>
            <button
                type="button"
                class="take"
                data-testid="snapshot-close"
                on:click=move |_| {
                    snapped.opened.set(None);
                    browser::focus("snapshot-title");
                }
            >
                "close the snapshot"
            </button>
        </div>
    }
}

/// How a line is drawn.
#[component]
fn Key(class: &'static str) -> impl IntoView {
    view! {
        <svg class="beside-key" viewBox="0 0 30 10" width="30" height="10" aria-hidden="true">
            <path class=class d="M0 5H30"/>
        </svg>
    }
}
