//! `[software]`: the versions that rules hang on.

use plimsoll_catalog::software::{self, Software, Version};

use super::Scenario;
use super::lever::{Group, Kind, Near, Written, levers};

levers! {
    /// `[software]`: versions; rules that changed between them hang on these.
    rows of Software = "software", software of Scenario {
        /// PyTorch's version.
        pub torch: Version = software::TORCH => {
            link: "torch",
            label: "PyTorch",
            help: "Its version: rules that bear on memory changed between them",
            group: Group::Software,
            near: Near::unlike(0.5),
        }
        /// transformers' version.
        pub transformers: Version = software::TRANSFORMERS => {
            link: "transformers",
            label: "transformers",
            help: "Its version: of those before 5 the loss and the attention call are followed",
            group: Group::Software,
            near: Near::unlike(0.25),
        }
        /// bitsandbytes' version, for what is quantized.
        pub bitsandbytes: Version = software::BITSANDBYTES => {
            link: "bitsandbytes",
            kind: Kind::Version { numbers: 3 },
            label: "bitsandbytes",
            help: "Its version, for what is quantized and for its optimizers",
            group: Group::Software,
            written: Written::WhereItSays,
            near: Near::unlike(0.25),
        }
    }
}
