//! The worker's side: answers errands until it is stopped.

use std::cell::RefCell;

use plimsoll_web::errand::Clerk;
use wasm_bindgen::prelude::*;
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

thread_local! {
    static CLERK: RefCell<Clerk> = RefCell::new(Clerk::default());
}

/// Listens for errands and says that it does.
pub fn serve() {
    let Ok(scope) = js_sys::global().dyn_into::<DedicatedWorkerGlobalScope>() else {
        return;
    };
    let replies = scope.clone();
    let listen = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let Some(errand) = event.data().as_string() {
            let reply = CLERK.with(|clerk| clerk.borrow_mut().reply(&errand));
            let _ = replies.post_message(&JsValue::from_str(&reply));
        }
    });
    scope.set_onmessage(Some(listen.as_ref().unchecked_ref()));
    listen.forget();
    let _ = scope.post_message(&JsValue::from_str("ready"));
}
