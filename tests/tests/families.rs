//! Every hand-written family against a recording of the real code, to the byte, in every phase.

use plimsoll_tests::accuracy::{FamilyOutcome, RECIPES, families};

#[test]
fn families_come_out_as_recordings_of_the_real_code_do() {
    let (mut same, mut wrong, mut recorded) = (0, Vec::new(), 0);
    for row in families().unwrap() {
        let Some(recording) = row.recording() else { continue };
        recorded += 1;
        for recipe in &RECIPES {
            let known = row.differs.contains_key(recipe.name);
            match row.compared(&recording, recipe) {
                FamilyOutcome::Same if known => {
                    wrong.push(format!("{} {}: known to differ, and is the same", row.name, recipe.name))
                }
                FamilyOutcome::Same => same += 1,
                FamilyOutcome::Differs(_) if known => {}
                FamilyOutcome::Differs(what) => wrong.push(format!("{} {}: {what}", row.name, recipe.name)),
                FamilyOutcome::Refused(why) => println!("{} {}: refused, {why}", row.name, recipe.name),
            }
        }
    }
    println!("{recorded} families recorded, {same} comparisons exact");
    assert!(recorded >= 58 && same >= 400, "{recorded} families, {same} comparisons");
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), wrong.len() + same, wrong.join("\n"));
}
