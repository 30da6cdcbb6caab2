//! No op is named outside `ops`, the optimizers and autograd: layers, generation and families go through the doors of `ops`,
//! which say what a kernel reads and writes. Families are kept to it by the compiler.

use std::path::Path;

#[test]
fn layers_and_generation_go_through_the_doors() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut looked_at = 0;
    let mut folders = ["nn", "generate"].map(|folder| source.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for way in ["Op::", ".launch(", ".in_place(", ".empty_sizes(", "cx.allocate(", "cx().allocate("] {
                assert!(!text.contains(way), "{} has {way}", path.display());
            }
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}
