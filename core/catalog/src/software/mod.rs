//! What changed between versions of PyTorch, transformers and bitsandbytes, and which rules a scenario's versions have.

mod known;
pub mod rules;
mod version;
mod wheels;

pub use known::{KNOWN_BITSANDBYTES, KNOWN_TORCH, KNOWN_TRANSFORMERS, nearest};
pub use rules::{Package, Rule};
pub use version::Version;
pub use wheels::without_kernels;

/// The PyTorch version when none is named: the one the reference rows were traced with.
pub const TORCH: Version = Version::new(2, 11);

/// The transformers version when none is named: the one the reference rows were traced with.
pub const TRANSFORMERS: Version = Version::new(5, 17);

/// The bitsandbytes version when none is named: the one the rows with a quantized base were traced with.
pub const BITSANDBYTES: Version = Version::patch(0, 50, 2);

/// Versions that rules hang on: of PyTorch and transformers two numbers count, of bitsandbytes three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// PyTorch's version.
    pub torch: Version,
    /// transformers' version.
    pub transformers: Version,
    /// bitsandbytes' version, for what is quantized.
    pub bitsandbytes: Version,
}

/// The versions the reference rows were traced with.
impl Default for Software {
    fn default() -> Self {
        Self { torch: TORCH, transformers: TRANSFORMERS, bitsandbytes: BITSANDBYTES }
    }
}

/// The versions whose rules are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(Software);

impl Rules {
    /// The rules of a scenario's versions, or of the nearest ones that are known.
    pub fn of(software: &Software) -> Self {
        Self(Software {
            torch: nearest(software.torch, KNOWN_TORCH),
            transformers: nearest(software.transformers, KNOWN_TRANSFORMERS),
            bitsandbytes: nearest(software.bitsandbytes, KNOWN_BITSANDBYTES),
        })
    }

    /// Whether `rule` holds.
    pub fn has(self, rule: &Rule) -> bool {
        match rule.package {
            Package::Torch => self.0.torch >= rule.since,
            Package::Transformers => self.0.transformers >= rule.since,
            Package::Bitsandbytes => self.0.bitsandbytes >= rule.since,
        }
    }

    /// PyTorch's version.
    pub const fn torch(self) -> Version {
        self.0.torch
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::of(&Software::default())
    }
}

impl Software {
    /// One sentence for each version whose rules are not known, saying whose are taken, and one for what is not followed
    /// in older versions of transformers.
    pub fn other_rules(&self) -> Vec<String> {
        let unknown = |name: &str, version: Version, known: &[Version]| {
            let taken = nearest(version, known);
            (taken != version)
                .then(|| format!("the rules of {name} {version} are not known; those of {taken} are taken"))
        };
        let mut sentences: Vec<String> = [
            unknown("torch", self.torch, KNOWN_TORCH),
            unknown("transformers", self.transformers, KNOWN_TRANSFORMERS),
            unknown("bitsandbytes", self.bitsandbytes, KNOWN_BITSANDBYTES),
        ]
        .into_iter()
        .flatten()
        .collect();
        let transformers = Rules::of(self).0.transformers;
        let default = TRANSFORMERS;
        if transformers.major < default.major {
            sentences.push(format!(
                "loss, masks, rotary positions, attention and caches follow transformers {transformers}, and so do the layers of GPT-2, \
                 GPT-J, GPT-Neo, GPT-NeoX, GPT-OSS, OPT, T5, BART, Whisper, CLIP, ModernBERT, ViT, Swin and ConvNeXt, mixtures and the masks of \
                 encoders; what else differs in layers, in DeBERTa above all, is that of {default}"
            ));
        }
        if transformers.major == default.major && transformers < default {
            sentences.push(format!(
                "every rule that is known follows transformers {transformers}; what grouped products of experts and linear attention make \
                 for themselves is that of {default}"
            ));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn software(torch: &str, transformers: &str) -> Software {
        let read = |text: &str| Version::parse(text).unwrap();
        Software { torch: read(torch), transformers: read(transformers), ..Software::default() }
    }

    fn bitsandbytes(version: &str) -> Software {
        Software { bitsandbytes: Version::parse_patch(version).unwrap(), ..Software::default() }
    }

    #[test]
    fn a_rule_holds_from_its_version_on() {
        let has = |torch: &str, rule: &Rule| Rules::of(&software(torch, "5.17")).has(rule);
        assert!(!has("1.13", &rules::FOREACH) && has("2.0", &rules::FOREACH) && has("2.11", &rules::FOREACH));
        assert!(!has("2.13", &rules::EFFICIENT_GROUPS) && has("2.14", &rules::EFFICIENT_GROUPS));
        let has = |transformers: &str, rule: &Rule| Rules::of(&software("2.11", transformers)).has(rule);
        assert!(!has("4.48", &rules::PADDED_LABELS) && has("4.49", &rules::PADDED_LABELS));
        assert_eq!(Rules::of(&software("2.11", "5.17")), Rules::default());
        let has = |version: &str, rule: &Rule| Rules::of(&bitsandbytes(version)).has(rule);
        assert!(!has("0.43.1", &rules::INPUT_LET_GO) && has("0.43.2", &rules::INPUT_LET_GO));
        assert!(!has("0.49.2", &rules::FUSED_FOUR_BIT) && has("0.50", &rules::FUSED_FOUR_BIT));
    }

    /// An unknown version has the rules of the nearest one that is known.
    #[test]
    fn unknown_versions_take_the_nearest_and_say_so() {
        assert_eq!(Rules::of(&software("2.99", "5.17")), Rules::of(&software("2.15", "5.17")));
        assert_eq!(Rules::of(&software("1.4", "5.17")), Rules::of(&software("1.13", "5.17")));
        let sentences = software("2.99", "6.1").other_rules();
        assert_eq!(
            sentences,
            [
                "the rules of torch 2.99 are not known; those of 2.15 are taken",
                "the rules of transformers 6.1 are not known; those of 5.24 are taken"
            ]
        );
        assert_eq!(
            bitsandbytes("0.51.3").other_rules(),
            ["the rules of bitsandbytes 0.51.3 are not known; those of 0.50.2 are taken"]
        );
        assert!(software("2.4", "5.17").other_rules().is_empty() && bitsandbytes("0.43.1").other_rules().is_empty());
        assert!(Rules::of(&Software::default()) == Rules::default() && Software::default().other_rules().is_empty());
        assert_eq!(software("2.4", "4.48").other_rules().len(), 1, "the layers are not followed");
    }

    /// Every rule lies within the versions that are known, else no version could have it and another not.
    #[test]
    fn every_rule_changes_something_between_known_versions() {
        for rule in rules::ALL {
            let known = match rule.package {
                Package::Torch => KNOWN_TORCH,
                Package::Transformers => KNOWN_TRANSFORMERS,
                Package::Bitsandbytes => KNOWN_BITSANDBYTES,
            };
            assert!(known.contains(&rule.since) && known[0] < rule.since, "{rule:?}");
            assert!(!rule.what.is_empty() && !rule.source.is_empty());
        }
    }
}
