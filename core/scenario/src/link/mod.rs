//! Share links: a scenario as the query of an address, readable and with non-default keys only.
//!
//! `?model=llama-3.2-1b&gpu=rtx-5070-ti&batch=4&precision=fp32`. A pasted `config.json` goes compressed into the
//! fragment (`#m=...`), which browsers do not send to servers; the query then names its type (`hf=llama`).
//!
//! Links open for ever: names in [`super::levers`] and the defaults of the format never change under `v=1`, which is
//! implied. The golden tests hold that.

mod command;
mod encode;
mod fragment;
mod params;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::Scenario;
pub(crate) use command::quoted as shell;
pub use fragment::BASE64;
use params::Param;
use plimsoll_ground::{Error, Result};

/// Longest query read, in bytes.
pub const QUERY: usize = 8 << 10;

/// Longest fragment read, in bytes.
pub const FRAGMENT: usize = 64 << 10;

/// The part behind `#` that carries the plans beside the scenario: [`Link::pack`]ed by the page, no part of the scenario.
pub const BESIDE: &str = "p";

/// Share links. See the functions.
#[derive(Clone, Copy, Debug)]
pub struct Link;

/// What a link says.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The scenario, with a default wherever the link was wrong.
    pub scenario: Scenario,
    /// One sentence for everything in the link that could not be used; empty for a good link.
    pub notices: Vec<String>,
}

/// A link as far as it could be read.
struct Reading {
    params: Vec<Param>,
    problems: Vec<Error>,
}

impl Link {
    /// The link of a scenario: `?model=...`, and `#m=...` behind it when the model is a pasted config.
    pub fn encode(scenario: &Scenario) -> String {
        encode::encode(scenario)
    }

    /// The same question as a command for a terminal, with flags that one can edit; the link where only that can say it.
    pub fn command(scenario: &Scenario) -> String {
        command::command(scenario)
    }

    /// The command that has the real PyTorch run it where there is no such card.
    pub fn rehearsal(scenario: &Scenario) -> String {
        command::rehearsal(scenario)
    }

    /// Reads a whole address, a `?query#fragment`, or a bare query. Never fails: what is wrong becomes a default and
    /// a notice.
    pub fn decode(link: &str) -> Decoded {
        let Reading { mut params, problems } = params::read(link);
        let mut sentences: Vec<String> = problems.iter().map(|problem| sentence(problem, "It")).collect();
        // Each round drops one parameter, so this ends.
        let scenario = loop {
            match Scenario::from_value(&params::assemble(&params)) {
                Ok(scenario) => break scenario,
                Err(error) => match params::culprit(&params, &error) {
                    Some(index) => {
                        params.remove(index);
                        sentences.push(sentence(&error, "It"));
                    }
                    // What is wrong is a default beside what the link says: something it says has to go, and as little as can be.
                    None => match params::in_the_way(&params) {
                        Some(index) => sentences.push(sentence(&error, &params.remove(index).path)),
                        None => {
                            sentences.push(sentence(&error, "The whole link"));
                            break Scenario::default();
                        }
                    },
                },
            }
        };
        Decoded { scenario, notices: notices(sentences) }
    }

    /// Text as it is carried behind `#`: base64url of raw deflate.
    pub fn pack(text: &str) -> String {
        fragment::pack(text)
    }

    /// The text of the part [`BESIDE`] of a whole address; `None` where it has no such part.
    ///
    /// # Errors
    /// A damaged part, or one of more than `most` bytes once unpacked.
    pub fn beside(link: &str, most: usize) -> Option<Result<String>> {
        let (_, fragment) = link.split_once('#')?;
        let packed = fragment.split('&').find_map(|part| part.strip_prefix(BESIDE)?.strip_prefix('='))?;
        Some(fragment::unpack(packed, most, BESIDE, "what stands beside the scenario"))
    }

    /// Reads a link, and refuses the first thing that is wrong in it.
    ///
    /// # Errors
    /// An unknown parameter, one given twice, a value [`Scenario::from_value`] refuses, a fragment that cannot be
    /// read, a newer version, no parameters at all.
    pub fn decode_strict(link: &str) -> Result<Scenario> {
        Scenario::from_value(&Self::to_value(link)?)
    }

    /// The scenario's table with only what the link says, not validated: for laying other settings over it.
    ///
    /// # Errors
    /// As [`Link::decode_strict`], but for the values.
    pub fn to_value(link: &str) -> Result<Value> {
        let reading = params::read(link);
        if let Some(problem) = reading.problems.into_iter().next() {
            return Err(problem);
        }
        if reading.params.is_empty() {
            return Err(Error::new(
                "link",
                "there is no scenario in it",
                "a link reads like ?model=llama-3.2-1b&gpu=rtx-5070-ti&batch=4",
            ));
        }
        Ok(params::assemble(&reading.params))
    }
}

/// Sentences for people; a link of pure garbage gets a few of them, not thousands.
fn notices(mut sentences: Vec<String>) -> Vec<String> {
    const MOST: usize = 12;
    let all = sentences.len();
    if all > MOST {
        sentences.truncate(MOST);
        sentences.push(format!("{} more parts of the link were left out.", all - MOST));
    }
    sentences
}

/// A problem as a sentence, and what was left out because of it.
fn sentence(problem: &Error, left_out: &str) -> String {
    let text = problem.to_string();
    let stop = if text.ends_with('?') { "" } else { "." };
    format!("{text}{stop} {left_out} was left out.")
}
