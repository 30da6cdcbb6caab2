//! What a hollow card is told: by whoever prepares it, through one environment variable.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The environment variable that holds a [`Setup`] as JSON.
pub const VARIABLE: &str = "PLIMSOLL_HOLLOW";

/// One card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// What the driver calls it: `NVIDIA GeForce RTX 3060`.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// What the driver lets processes have, in bytes: `torch.cuda.get_device_properties(0).total_memory`.
    pub memory: u64,
    /// What `nvidia-smi` calls the card's total, in bytes.
    pub board: u64,
    /// What a process's context takes, in bytes.
    pub context: u64,
    /// Whether the driver places what it is asked for below what it placed before, and not above.
    #[serde(default)]
    pub falling: bool,
}

/// What the host reads where a kernel would have computed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// A truth value read from the card. `None`: `all()` holds, `any()` does not, any other is true.
    pub truth: Option<bool>,
    /// Generation: how many tokens until "is everybody done" is yes. 0: at once.
    pub stop_after: u32,
    /// A boolean mask selects no element (`hidden[mask]`, `nonzero`). `false`: it selects all of them.
    #[serde(default)]
    pub selects_nothing: bool,
}

/// Everything the stand-in is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The cards, in the order of their indices before `CUDA_VISIBLE_DEVICES`.
    pub cards: Vec<Card>,
    /// What the host reads back.
    pub rules: Rules,
    /// The CUDA version that PyTorch was built for, as the runtime numbers it: 13000 for 13.0.
    pub cuda: i32,
    /// The cuDNN version that PyTorch was built for, as cuDNN numbers it: 91900 for 9.19.0.
    pub cudnn: usize,
    /// The folder in which the processes tell one another what they hold; without one, each has cards of its own.
    #[serde(default)]
    pub book: Option<PathBuf>,
    /// The socket behind which somebody says what cuDNN takes for a convolution; without one, nothing.
    #[serde(default)]
    pub planner: Option<PathBuf>,
}

impl Setup {
    /// As [`VARIABLE`] holds it.
    ///
    /// # Errors
    /// None that a setup can cause; the type is serde's.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Read back.
    ///
    /// # Errors
    /// If the text is not what [`Setup::to_json`] writes.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_comes_back_as_it_went() {
        let card = Card {
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 150_110_011_392,
            board: 150_754_820_096,
            context: 587_202_560,
            falling: true,
        };
        let setup = Setup {
            cards: vec![card],
            rules: Rules::default(),
            cuda: 13000,
            cudnn: 91900,
            book: Some("/x".into()),
            planner: Some("/y".into()),
        };
        let text = setup.to_json().unwrap();
        assert_eq!(Setup::from_json(&text).unwrap(), setup);
        assert!(Setup::from_json("{}").is_err());
    }
}
