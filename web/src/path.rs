//! SVG path data, written without the cost of float formatting: a timeline is thousands of numbers.

/// A path under construction; coordinates keep one decimal.
#[derive(Clone, Debug, Default)]
pub struct Path(String);

impl Path {
    /// Room for `points` steps.
    pub fn with_capacity(points: usize) -> Self {
        Self(String::with_capacity(points * 14))
    }

    /// Moves the pen.
    pub fn to(&mut self, x: f64, y: f64) {
        self.0.push('M');
        push(&mut self.0, x);
        self.0.push(' ');
        push(&mut self.0, y);
    }

    /// Draws across.
    pub fn across(&mut self, x: f64) {
        self.0.push('H');
        push(&mut self.0, x);
    }

    /// Draws up or down.
    pub fn upright(&mut self, y: f64) {
        self.0.push('V');
        push(&mut self.0, y);
    }

    /// Draws straight to a point.
    pub fn line(&mut self, x: f64, y: f64) {
        self.0.push('L');
        push(&mut self.0, x);
        self.0.push(' ');
        push(&mut self.0, y);
    }

    /// Back to where the pen was moved last.
    pub fn close(&mut self) {
        self.0.push('Z');
    }

    /// The path data.
    pub fn finish(self) -> String {
        self.0
    }
}

/// `value` with at most one decimal.
fn push(text: &mut String, value: f64) {
    let tenths = (value * 10.0).round().clamp(-1e9, 1e9) as i64;
    if tenths < 0 {
        text.push('-');
    }
    let tenths = tenths.unsigned_abs();
    let mut digits = [0u8; 20];
    let mut whole = tenths / 10;
    let mut count = 0;
    for slot in &mut digits {
        *slot = b'0' + (whole % 10) as u8;
        whole /= 10;
        count += 1;
        if whole == 0 {
            break;
        }
    }
    for digit in digits.iter().take(count).rev() {
        text.push(char::from(*digit));
    }
    if !tenths.is_multiple_of(10) {
        text.push('.');
        text.push(char::from(b'0' + (tenths % 10) as u8));
    }
}

/// A gentle swell along `y` from `left` to `right`: the water's surface.
pub fn swell(left: f64, right: f64, y: f64, length: f64, height: f64) -> String {
    let mut path = Path::default();
    path.to(left, y);
    let mut text = path.finish();
    let mut x = left;
    let mut up = true;
    while x < right {
        let end = (x + length).min(right);
        let control = if up { y - height } else { y + height };
        text.push('Q');
        for (value, space) in [((x + end) / 2.0, ' '), (control, ' '), (end, ' '), (y, ' ')] {
            push(&mut text, value);
            text.push(space);
        }
        x = end;
        up = !up;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Path, swell};

    #[test]
    fn one_decimal_and_no_more() {
        let mut path = Path::with_capacity(4);
        path.to(0.04, -1.25);
        path.across(10.0);
        path.upright(1234.56);
        path.line(0.1, 100.0);
        path.close();
        assert_eq!(path.finish(), "M0 -1.3H10V1234.6L0.1 100Z");
    }

    #[test]
    fn what_is_not_a_number_stays_a_path() {
        let mut path = Path::default();
        path.to(f64::NAN, f64::INFINITY);
        assert_eq!(path.finish(), "M0 100000000");
    }

    #[test]
    fn the_swell_ends_where_asked() {
        assert!(swell(0.0, 50.0, 10.0, 20.0, 2.0).trim_end().ends_with("50 10"));
        assert_eq!(swell(0.0, 0.0, 10.0, 20.0, 2.0), "M0 10");
    }
}
