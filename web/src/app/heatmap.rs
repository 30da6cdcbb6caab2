//! The heat map: what fits over batches and sequences.

use leptos::html::Table;
use leptos::prelude::*;
use plimsoll_core::estimate::Verdict;
use plimsoll_web::heatmap::{Map, MapCell, MapRow};
use plimsoll_web::number;
use wasm_bindgen::prelude::*;

use super::planner::Planner;

/// Row and column.
type Place = (usize, usize);

#[component]
pub fn HeatMapSection() -> impl IntoView {
    let planner = Planner::get();
    let map = Memo::new(move |_| planner.grid.with(|s| s.as_ref().map(|s| Map::new(s))));
    let own = Memo::new(move |_| {
        let (batch, seq) = planner.below.scenario.with(|s| (s.input.batch, s.input.seq));
        map.with(|m| m.as_ref().and_then(|m| m.place(batch, seq)))
    });
    // Where the keyboard is; where it has not been yet, the scenario's own cell.
    let cursor: RwSignal<Option<Place>> = RwSignal::new(None);
    let looked_at: RwSignal<Option<Place>> = RwSignal::new(None);
    let table = NodeRef::<Table>::new();

    let status = move || {
        let at = looked_at.get().or_else(|| own.get())?;
        map.with(|m| Some(m.as_ref()?.rows.get(at.0)?.cells.get(at.1)?.says.clone()))
    };
    let line = move || planner.below.reading.with(|r| r.as_ref().map(|r| number::bytes(r.load_line)));
    let step = move |event: web_sys::KeyboardEvent| {
        if event.meta_key() || event.alt_key() {
            return;
        }
        let from = cursor.get_untracked().or_else(|| own.get_untracked()).unwrap_or_default();
        let to = map.with_untracked(|m| m.as_ref().and_then(|m| m.moved(from, &event.key(), event.ctrl_key())));
        if let Some((row, column)) = to {
            event.prevent_default();
            cursor.set(Some((row, column)));
            focus(table, row, column);
        }
    };

    view! {
        <section
            class="section"
            aria-labelledby="heatmap-title"
            class:is-pending=move || planner.awaits(planner.grid_pending.get())
            hidden=move || map.with(Option::is_none)
        >
            <header class="section-head">
                <h2 id="heatmap-title">"What fits"</h2>
                <p>"Peak of the process in GiB for every batch and sequence. A cell sets both."</p>
            </header>
            <p class="status-line heat-status" aria-hidden="true">{status}</p>
            <table class="heat" role="grid" data-testid="heatmap" node_ref=table aria-labelledby="heatmap-title" on:keydown=step>
                <thead>
                    {move || map.with(|m| m.as_ref().map(|m| head(&m.columns)))}
                </thead>
                <tbody on:pointerleave=move |_| looked_at.set(None)>
                    {move || {
                        map.get()
                            .map(|m| m.rows)
                            .unwrap_or_default()
                            .into_iter()
                            .enumerate()
                            .map(|(index, row)| view! { <Row index row own cursor looked_at/> })
                            .collect_view()
                    }}
                </tbody>
            </table>
            <ul class="heat-key">
                <li>
                    <span class="heat-swatch heat-0"></span>
                    <span class="heat-swatch heat-2"></span>
                    <span class="heat-swatch heat-4"></span>
                    "fits, deeper and deeper"
                </li>
                <li hidden=move || !has(planner, Verdict::Tight)><span class="heat-swatch heat-tight"></span>"tight: runs, over the line"</li>
                <li>
                    <span class="heat-swatch heat-over over-0"></span>
                    <span class="heat-swatch heat-over over-2"></span>
                    <span class="heat-swatch heat-over over-4"></span>
                    <span class="heat-swatch heat-over over-5"></span>
                    "does not fit: up to 1.25, 2, 5 times the line, and more"
                </li>
                <li><span class="heat-line"></span>"load line, "{line}</li>
            </ul>
        </section>
    }
}

fn has(planner: Planner, verdict: Verdict) -> bool {
    planner.grid.with(|s| {
        s.as_ref().is_some_and(|s| s.rows.iter().flat_map(|row| &row.cells).any(|cell| cell.verdict == verdict))
    })
}

fn head(columns: &[Option<u64>]) -> impl IntoView + use<> {
    let labels: Vec<String> = columns.iter().map(|seq| seq.map_or_else(|| "GiB".to_owned(), number::grouped)).collect();
    let tokens = columns.iter().any(Option::is_some);
    view! {
        <tr>
            <th scope="col">{if tokens { "batch \\ tokens" } else { "batch" }}</th>
            {labels.into_iter().map(|label| view! { <th scope="col">{label}</th> }).collect_view()}
        </tr>
    }
}

#[component]
fn Row(
    index: usize,
    row: MapRow,
    own: Memo<Option<Place>>,
    cursor: RwSignal<Option<Place>>,
    looked_at: RwSignal<Option<Place>>,
) -> impl IntoView {
    view! {
        <tr>
            <th scope="row">{number::grouped(row.batch)}</th>
            {row
                .cells
                .into_iter()
                .enumerate()
                .map(|(column, cell)| view! { <Square at=(index, column) cell own cursor looked_at/> })
                .collect_view()}
        </tr>
    }
}

#[component]
fn Square(
    at: Place,
    cell: MapCell,
    own: Memo<Option<Place>>,
    cursor: RwSignal<Option<Place>>,
    looked_at: RwSignal<Option<Place>>,
) -> impl IntoView {
    let planner = Planner::get();
    let MapCell { batch, seq, text, says, class, usable } = cell;
    // What is seen comes first: whoever speaks to the page says what stands there.
    let named = format!("{text}: {says}");
    // One stop for the Tab key: the cursor's cell, or the scenario's own, or the first.
    let stop = move || cursor.get().or_else(|| own.get()).unwrap_or_default() == at;
    view! {
        <td class=class>
            <button
                type="button"
                tabindex=move || if stop() { "0" } else { "-1" }
                aria-label=named
                aria-disabled=if usable { None } else { Some("true") }
                aria-current=move || (own.get() == Some(at)).then_some("true")
                on:pointerenter=move |_| looked_at.set(Some(at))
                on:focus=move |_| {
                    cursor.set(Some(at));
                    looked_at.set(Some(at));
                }
                on:blur=move |_| looked_at.set(None)
                on:click=move |_| {
                    if usable {
                        planner.take_sizes(batch, seq);
                    }
                }
            >
                {text}
            </button>
        </td>
    }
}

/// Moves the keyboard's focus to a cell.
fn focus(table: NodeRef<Table>, row: usize, column: usize) {
    let button = table.get_untracked().and_then(|table| {
        let selector = format!("tbody tr:nth-child({}) td:nth-of-type({}) button", row + 1, column + 1);
        table.query_selector(&selector).ok().flatten()?.dyn_into::<web_sys::HtmlElement>().ok()
    });
    if let Some(button) = button {
        let _ = button.focus();
    }
}
