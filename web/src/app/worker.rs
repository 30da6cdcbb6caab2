//! The worker's side: answers requests until it is stopped.

use std::cell::RefCell;

use plimsoll_web::protocol::Responder;
use wasm_bindgen::prelude::*;
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

thread_local! {
    static RESPONDER: RefCell<Responder> = RefCell::new(Responder::default());
}

/// Listens for requests and says that it does.
pub fn serve() {
    let Ok(scope) = js_sys::global().dyn_into::<DedicatedWorkerGlobalScope>() else {
        return;
    };
    let replies = scope.clone();
    let listen = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let Some(request) = event.data().as_string() {
            let response = RESPONDER.with(|responder| responder.borrow_mut().respond(&request));
            let _ = replies.post_message(&JsValue::from_str(&response));
        }
    });
    scope.set_onmessage(Some(listen.as_ref().unchecked_ref()));
    listen.forget();
    let _ = scope.post_message(&JsValue::from_str("ready"));
}
