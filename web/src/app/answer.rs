//! Taking the answer along: as a note in Markdown, as a picture.

use leptos::prelude::*;
use plimsoll_core::estimate::estimate;
use plimsoll_core::{Error, summary};
use wasm_bindgen::prelude::*;
use web_sys::{CanvasRenderingContext2d, HtmlAnchorElement, HtmlCanvasElement, HtmlImageElement};

use super::browser;
use super::planner::{Planner, in_full};

/// How long a button says what it did, in ms.
const THANKS: i32 = 1800;

/// Dots of a PNG for each px of the picture: sharp on the screens people have.
const DENSITY: f64 = 2.0;

/// What the answer is taken as.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Markdown,
    Svg,
    Png,
}

impl Form {
    const ALL: [Self; 3] = [Self::Markdown, Self::Svg, Self::Png];

    const fn label(self) -> &'static str {
        match self {
            Self::Markdown => "Copy as Markdown",
            Self::Svg => "Save picture (SVG)",
            Self::Png => "Save picture (PNG)",
        }
    }

    const fn hook(self) -> &'static str {
        match self {
            Self::Markdown => "answer-markdown",
            Self::Svg => "answer-svg",
            Self::Png => "answer-png",
        }
    }
}

/// The buttons.
#[component]
pub fn Answer() -> impl IntoView {
    let planner = Planner::get();
    let done = RwSignal::new(None::<(Form, &'static str)>);
    let fault = RwSignal::new(None::<Error>);
    // Where the clipboard is out of reach the note is shown.
    let shown = RwSignal::new(None::<String>);
    let thank = move |form: Form, word: &'static str| {
        done.set(Some((form, word)));
        browser::after(THANKS, move || done.set(None));
    };
    let take = move |form: Form| {
        let scenario = planner.scenario.get_untracked();
        let estimate = match estimate(&scenario) {
            Ok(estimate) => estimate,
            Err(error) => return fault.set(Some(error)),
        };
        fault.set(None);
        match form {
            Form::Markdown => {
                let note = summary::markdown(&scenario, &estimate);
                browser::copy(&note.clone(), move |copied| {
                    if copied {
                        thank(form, "Copied");
                    } else {
                        shown.set(Some(note));
                    }
                });
            }
            Form::Svg => {
                save("plimsoll.svg", &address(&summary::picture(&scenario, &estimate)));
                thank(form, "Saved");
            }
            Form::Png => painted(&summary::picture(&scenario, &estimate), move |png| match png {
                Some(png) => {
                    save("plimsoll.png", &png);
                    thank(form, "Saved");
                }
                None => fault.set(Some(Error::new("picture", "this browser cannot paint it", "save the SVG instead"))),
            }),
        }
    };
    view! {
        <fieldset class="field">
            <legend>"Take the answer"</legend>
            <div class="exchange-actions">
                {Form::ALL
                    .map(|form| {
                        view! {
                            <button type="button" class="tool" data-testid=form.hook() on:click=move |_| take(form)>
                                {move || match done.get() {
                                    Some((at, word)) if at == form => word,
                                    _ => form.label(),
                                }}
                            </button>
                        }
                    })
                    .collect_view()}
            </div>
            <span class="unseen" role="status">{move || done.get().map(|(_, word)| word)}</span>
            <p class="error" role="alert">
                {move || fault.get().map(|fault| view! { <code>{fault.key.clone()}</code> ": " {in_full(&fault)} })}
            </p>
            {move || {
                shown
                    .get()
                    .map(|note| view! { <pre tabindex="0" role="region" aria-label="The answer in Markdown">{note}</pre> })
            }}
        </fieldset>
    }
}

/// A picture as an address.
fn address(svg: &str) -> String {
    format!("data:image/svg+xml;charset=utf-8,{}", js_sys::encode_uri_component(svg))
}

/// Has the browser save what an address holds.
fn save(name: &str, address: &str) {
    let anchor = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.create_element("a").ok())
        .and_then(|element| element.dyn_into::<HtmlAnchorElement>().ok());
    if let Some(anchor) = anchor {
        anchor.set_download(name);
        anchor.set_href(address);
        anchor.click();
    }
}

/// Paints a picture and hands over the PNG's address, or `None` where the browser would not.
fn painted(svg: &str, then: impl FnOnce(Option<String>) + 'static) {
    let Ok(image) = HtmlImageElement::new() else {
        return then(None);
    };
    let then = std::rc::Rc::new(std::cell::Cell::new(Some(then)));
    let loaded = {
        let (image, then) = (image.clone(), then.clone());
        Closure::once_into_js(move || {
            if let Some(then) = then.take() {
                then(png(&image));
            }
        })
    };
    let failed = Closure::once_into_js(move || {
        if let Some(then) = then.take() {
            then(None);
        }
    });
    image.set_onload(Some(loaded.unchecked_ref()));
    image.set_onerror(Some(failed.unchecked_ref()));
    image.set_src(&address(svg));
}

/// What was loaded, painted.
fn png(image: &HtmlImageElement) -> Option<String> {
    let (width, height) = (f64::from(image.natural_width()), f64::from(image.natural_height()));
    let canvas = web_sys::window()?.document()?.create_element("canvas").ok()?.dyn_into::<HtmlCanvasElement>().ok()?;
    canvas.set_width((width * DENSITY) as u32);
    canvas.set_height((height * DENSITY) as u32);
    let brush = canvas.get_context("2d").ok()??.dyn_into::<CanvasRenderingContext2d>().ok()?;
    brush.draw_image_with_html_image_element_and_dw_and_dh(image, 0.0, 0.0, width * DENSITY, height * DENSITY).ok()?;
    canvas.to_data_url_with_type("image/png").ok()
}
