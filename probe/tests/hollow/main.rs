//! `plimsoll probe` on hollow cards: the real worker and the real PyTorch, where there is no card.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

mod cards;
mod contact;
mod dry;
mod ranks;
mod run;
mod trials;

/// A GPT-2 of two layers, small enough for any machine.
const GPT2: [&str; 6] = ["--model", "distilgpt2", "--seq", "128", "--batch", "2"];

const MLP: [&str; 2] = ["--family", "mlp"];
