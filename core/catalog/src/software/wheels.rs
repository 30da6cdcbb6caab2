//! Which cards PyTorch's wheels have kernels for.

use super::Version;

/// Compute capabilities.
type Capabilities = &'static [(u8, u8)];

/// From this release on: what the wheels on PyPI (Linux, x86-64) have kernels for, as it stands in
/// `libtorch_cuda.so` of 2.4.1, 2.5.1, 2.6.0 and 2.7.1; 2.8.0, 2.9.1 and 2.10.0; 2.11.0, 2.13.0 and 2.15.0 (`torch.cuda.get_arch_list`).
const BUILT_FOR: [(Version, Capabilities); 3] = [
    (Version::new(2, 4), &[(5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)]),
    (Version::new(2, 8), &[(7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)]),
    (Version::new(2, 11), &[(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)]),
];

/// A sentence where the wheels of `torch` have no kernel that runs on a card of this compute capability. Nothing is said of releases
/// before those that were read.
pub fn without_kernels(torch: Version, (major, minor): (u8, u8)) -> Option<String> {
    // What is built for 8.0 runs on all 8.x from there on.
    let runs = |built: Capabilities| built.iter().any(|(of, from)| *of == major && *from <= minor);
    let at = BUILT_FOR.iter().rposition(|(since, _)| *since <= torch)?;
    let (before, now) = BUILT_FOR.split_at(at);
    let (_, built) = now.first()?;
    if runs(built) {
        return None;
    }
    let later = now.iter().find(|(_, built)| runs(built)).map(|(since, _)| format!("those of {since} and later have"));
    let earlier = || {
        let had = before.iter().any(|(_, built)| runs(built));
        had.then(|| format!("those before {} had, and wheels for an older CUDA may have", now[0].0))
    };
    let hint = later.or_else(earlier).map(|hint| format!(": {hint}")).unwrap_or_default();
    Some(format!(
        "PyTorch {torch} as it is on PyPI has no kernels for this card (compute capability {major}.{minor}), and a run would end with \
         \"no kernel image is available\"{hint}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_came_and_went() {
        let said = |minor, card| without_kernels(Version::new(2, minor), card);
        assert!(said(7, (12, 0)).is_some_and(|said| said.ends_with("those of 2.8 and later have")));
        assert!(said(11, (7, 0)).is_some_and(|said| said.contains("those before 2.11 had")));
        assert_eq!(
            [said(8, (12, 0)), said(10, (7, 0)), said(5, (8, 9)), said(15, (10, 3)), said(1, (12, 0))],
            [None, None, None, None, None]
        );
    }
}
