/// With thousands separated, as people read long figures: `1,235,814,400`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_from_the_right() {
        assert_eq!([0, 999, 1000, 124_439_808].map(grouped), ["0", "999", "1,000", "124,439,808"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
