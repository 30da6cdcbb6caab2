//! The few things the page asks of the browser itself.

use std::cell::Cell;
use std::rc::Rc;

use wasm_bindgen::prelude::*;
use web_sys::{Document, Element};

/// The document of the page.
pub fn document() -> Option<Document> {
    web_sys::window()?.document()
}

/// The element with this id.
pub fn element(id: &str) -> Option<Element> {
    document()?.get_element_by_id(id)
}

/// Moves the focus to the element with this id, and that into sight.
pub fn focus(id: &str) {
    if let Some(element) = element(id).and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Copies text; `then` hears whether it was. Browsers keep the clipboard from pages that are not served securely.
pub fn copy(text: &str, then: impl FnOnce(bool) + 'static) {
    let clipboard = || -> Option<web_sys::Clipboard> {
        let navigator = web_sys::window()?.navigator();
        js_sys::Reflect::get(&navigator, &JsValue::from_str("clipboard")).ok()?.dyn_into().ok()
    };
    let Some(clipboard) = clipboard() else {
        return then(false);
    };
    let then = Rc::new(Cell::new(Some(then)));
    let once = |copied: bool| {
        let then = then.clone();
        Closure::once(move |_: JsValue| {
            if let Some(then) = then.take() {
                then(copied);
            }
        })
    };
    let (yes, no) = (once(true), once(false));
    let _ = clipboard.write_text(text).then2(&yes, &no);
    yes.forget();
    no.forget();
}

/// What this browser keeps by a name; `None` where nothing is kept, or keeping is forbidden.
pub fn kept(key: &str) -> Option<String> {
    web_sys::window()?.local_storage().ok()??.get_item(key).ok()?
}

/// Keeps text by a name in this browser. Storage may be forbidden or full: whether it is kept.
pub fn keep(key: &str, text: &str) -> bool {
    let storage = web_sys::window().and_then(|w| w.local_storage().ok().flatten());
    storage.is_some_and(|storage| storage.set_item(key, text).is_ok())
}

/// The names of what this browser keeps that begin with `prefix`, in order.
pub fn kept_under(prefix: &str) -> Vec<String> {
    let storage = web_sys::window().and_then(|w| w.local_storage().ok().flatten());
    let count = |storage: &web_sys::Storage| storage.length().unwrap_or(0);
    let mut names: Vec<String> = storage
        .iter()
        .flat_map(|storage| (0..count(storage)).filter_map(|index| storage.key(index).ok().flatten()))
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

/// Keeps nothing by this name any more.
pub fn forget(key: &str) {
    if let Some(storage) = web_sys::window().and_then(|w| w.local_storage().ok().flatten()) {
        let _ = storage.remove_item(key);
    }
}

/// Milliseconds since the page was opened.
pub fn now() -> f64 {
    web_sys::window().and_then(|w| w.performance()).map_or(0.0, |p| p.now())
}

/// Runs `action` once after `ms` milliseconds; `None` when the browser refuses.
pub fn after(ms: i32, action: impl FnOnce() + 'static) -> Option<i32> {
    let closure = Closure::once_into_js(action);
    web_sys::window()?.set_timeout_with_callback_and_timeout_and_arguments_0(closure.unchecked_ref(), ms).ok()
}

/// Calls `action` when what is on the page by now has been painted; where nothing is painted, as in a tab behind another,
/// soon.
pub fn after_paint(action: Box<dyn FnOnce()>) {
    /// No frame comes later than this, in ms, on a page that is seen.
    const UNSEEN: i32 = 400;
    /// Half a frame, in ms, for what brings the frame onto the screen.
    const SHOWN: i32 = 8;
    let action = Rc::new(Cell::new(Some(action)));
    let act = |action: &Cell<Option<_>>| action.take().into_iter().for_each(|act: Box<dyn FnOnce()>| act());
    let late = Rc::clone(&action);
    after(UNSEEN, move || act(&late));
    // A frame's callbacks run before it is drawn, in the same task: what they put off comes after that.
    next_frame(move || {
        after(SHOWN, move || act(&action));
    });
}

fn next_frame(action: impl FnOnce() + 'static) {
    let action = Closure::once_into_js(action);
    if let Some(window) = web_sys::window() {
        let _ = window.request_animation_frame(action.unchecked_ref());
    }
}

/// Forgets a timer of [`after`].
pub fn cancel(timer: i32) {
    if let Some(window) = web_sys::window() {
        window.clear_timeout_with_handle(timer);
    }
}

/// A panic is a bug: it is written to the console and the page says so instead of going silent.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        web_sys::console::error_1(&JsValue::from_str(&info.to_string()));
        if let Some(root) = document().and_then(|d| d.document_element()) {
            let _ = root.set_attribute("data-state", "wrecked");
        }
    }));
}

/// Says that the page has taken over from the static shell.
pub fn mark_ready() {
    if let Some(root) = document().and_then(|d| d.document_element()) {
        let _ = root.set_attribute("data-state", "ready");
    }
}

/// Width of the window in px: what a drawing takes until it knows its own.
pub fn window_width() -> f64 {
    web_sys::window().and_then(|w| w.inner_width().ok()).and_then(|w| w.as_f64()).unwrap_or(640.0)
}

/// Calls `changed` with the width of `element` in px now and whenever it changes, as long as the page lives. What is
/// hidden has no width, and keeps the one it had.
pub fn watch_width(element: &Element, changed: impl Fn(f64) + 'static) {
    watch(element, move |element| changed(element.get_bounding_client_rect().width()));
}

/// The same of the height.
pub fn watch_height(element: &Element, changed: impl Fn(f64) + 'static) {
    watch(element, move |element| changed(element.get_bounding_client_rect().height()));
}

fn watch(element: &Element, changed: impl Fn(&Element) + 'static) {
    let changed = move |element: &Element| {
        if element.get_bounding_client_rect().width() > 0.0 {
            changed(element);
        }
    };
    changed(element);
    let closure = Closure::<dyn FnMut(js_sys::Array)>::new(move |entries: js_sys::Array| {
        if let Ok(entry) = entries.get(0).dyn_into::<web_sys::ResizeObserverEntry>() {
            changed(&entry.target());
        }
    });
    if let Ok(observer) = web_sys::ResizeObserver::new(closure.as_ref().unchecked_ref()) {
        observer.observe(element);
        // The page is one view that is never taken down: observer and closure live as long as it does.
        std::mem::forget(observer);
    }
    closure.forget();
}
