//! The family that a `model_type` without one is most like: which to estimate in its place.

use std::cmp::Reverse;

use super::{Family, TRANSFORMERS};

/// The families of transformers that go by the same name, whatever number or variant stands behind it: `qwen4_moe` would be of the
/// Qwens. Where a model has experts, those that have them come first; then whose name begins most alike; then whose last part is the same,
/// as `vl`. Empty: no name does.
pub fn near(model_type: &str, experts: bool) -> Vec<&'static Family> {
    let kin = |family: &&'static Family| stem(family.name) == stem(model_type);
    let alike = |name: &str| {
        let same = name.chars().zip(model_type.chars()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
        // That both go on behind a number says nothing.
        same - usize::from(same > 0 && name.as_bytes().get(same - 1) == Some(&b'_'))
    };
    let last = |name: &str| name.rsplit('_').next().map(str::to_ascii_lowercase);
    let mut near: Vec<&'static Family> = TRANSFORMERS.iter().filter(kin).collect();
    near.sort_by_key(|family| {
        let unlike = last(family.name) != last(model_type);
        (family.experts.is_some() != experts, Reverse(alike(family.name)), unlike)
    });
    near
}

/// The letters a name begins with, in lower case.
fn stem(name: &str) -> String {
    name.chars().take_while(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn a_newer_model_leads_to_those_of_its_name() {
        let first = |name: &str, experts| near(name, experts).first().map(|family| family.name);
        assert_eq!(first("qwen3_omni_moe", true), Some("qwen3_moe"));
        assert_eq!(first("qwen2_audio", false), Some("qwen2"));
        assert_eq!(first("qwen2_vl", false), Some("qwen2_5_vl"));
        assert_eq!(first("deepseek_v32", true), Some("deepseek_v3"));
        assert_eq!(first("llama4", true), Some("llama4_text"));
        assert_eq!(first("gemma3n", false), Some("gemma3_text"));
        assert_eq!((first("mamba", false), first("", false), first("4", false)), (None, None, None));
    }
}
