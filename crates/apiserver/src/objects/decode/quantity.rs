//! Quantities such as `100m`, `1.5Gi` or `12e6`, brought into the form in which they are stored.
//!
//! The arithmetic is exact: digits are kept as decimal digits, whatever their number. It does not
//! compare or add quantities.

/// Smallest units: a quantity is rounded up (away from zero) to a multiple of 10 to this power.
pub(crate) const NANO: i64 = -9;
/// What lists of resources (requests, limits, capacity) are rounded to.
pub(crate) const MILLI: i64 = -3;

pub(crate) const BAD_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
pub(crate) const BAD_SUFFIX: &str = "unable to parse quantity's suffix";

const DECIMAL_SUFFIXES: [(i64, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of its suffix, which a quantity keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A power of ten, written as a letter.
    Decimal(i64),
    /// A power of ten, written as `e3`.
    Exponent(i64),
    /// A power of 1024.
    Binary(usize),
}

/// The canonical form of `text`, or `None` when it is `text` itself.
///
/// A whole number that no larger suffix could shorten is left exactly as it was written (`+1`, `010m`, `1E3`).
pub(crate) fn canonical(text: &str, finest: i64) -> Result<Option<String>, &'static str> {
    let trimmed = text.trim();
    let (negative, whole, fraction, suffix) = split(trimmed)?;
    let unit = parse_unit(suffix)?;
    let whole = whole.trim_start_matches('0');
    if trimmed == "0" || fraction.is_empty() && is_shortest(whole, unit, finest) {
        return Ok((trimmed.len() != text.len()).then(|| trimmed.to_owned()));
    }
    let digits = [whole.as_bytes(), fraction.as_bytes()].concat();
    let mut amount = Amount {
        digits: digits.iter().map(|digit| digit - b'0').collect(),
        exponent: -(fraction.len() as i64),
    };
    match unit {
        Unit::Decimal(power) | Unit::Exponent(power) => amount.exponent += power,
        Unit::Binary(power) => (0..power).for_each(|_| amount.multiply_by_1024()),
    }
    amount.round_up(finest);
    let sign = if negative { "-" } else { "" };
    Ok(Some(amount.write(unit, sign)))
}

/// Sign, whole digits, digits after the point, suffix.
fn split(text: &str) -> Result<(bool, &str, &str, &str), &'static str> {
    if text.is_empty() {
        return Err(BAD_FORMAT);
    }
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = take_while(rest, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take_while(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, tail) = take_while(suffix, |c| "eEinumkKMGTP".contains(c));
    let tail = tail.strip_prefix(['+', '-']).unwrap_or(tail);
    if !tail.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD_FORMAT);
    }
    Ok((negative, whole, fraction, suffix))
}

fn take_while(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

fn parse_unit(suffix: &str) -> Result<Unit, &'static str> {
    if let Some((power, _)) = DECIMAL_SUFFIXES.iter().find(|(_, s)| *s == suffix) {
        return Ok(Unit::Decimal(*power));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|s| *s == suffix) {
        return Ok(Unit::Binary(power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(BAD_SUFFIX)?;
    let power: i32 = exponent.parse().map_err(|_| BAD_SUFFIX)?;
    Ok(Unit::Exponent(power.into()))
}

/// Whether a whole number is already in its shortest form.
fn is_shortest(whole: &str, unit: Unit, finest: i64) -> bool {
    if whole.is_empty() {
        return false;
    }
    match unit {
        Unit::Decimal(power) | Unit::Exponent(power) => {
            power >= finest && power % 3 == 0 && !whole.ends_with("000")
        }
        Unit::Binary(power) => {
            let number: Option<u64> = whole.parse().ok();
            let fits = |n: &u64| u128::from(*n) << (10 * power) <= i64::MAX as u128;
            number.filter(fits).is_some_and(|n| !n.is_multiple_of(1024))
        }
    }
}

/// `digits` times ten to the power of `exponent`; no digits are zero.
struct Amount {
    digits: Vec<u8>,
    exponent: i64,
}

impl Amount {
    fn multiply_by_1024(&mut self) {
        let mut carry: u32 = 0;
        for digit in self.digits.iter_mut().rev() {
            let product = u32::from(*digit) * 1024 + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        let mut front = Vec::new();
        while carry > 0 {
            front.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
        self.digits.splice(0..0, front);
    }

    fn round_up(&mut self, finest: i64) {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            return;
        }
        if self.exponent < finest {
            let excess = usize::try_from(finest - self.exponent).unwrap_or(usize::MAX);
            let kept = self.digits.len().saturating_sub(excess);
            let lost = self.digits.split_off(kept);
            self.exponent = finest;
            if lost.iter().any(|digit| *digit != 0) {
                self.increment();
            }
        }
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    fn write(&self, unit: Unit, sign: &str) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        if matches!(unit, Unit::Binary(_))
            && let Some(text) = self.write_binary()
        {
            return format!("{sign}{text}");
        }
        let mut power = self.exponent.div_euclid(3) * 3;
        if !matches!(unit, Unit::Exponent(_)) {
            power = power.min(18);
        }
        let zeros = usize::try_from(self.exponent - power).unwrap_or(0);
        let digits: String = self.digits.iter().map(|d| char::from(b'0' + d)).collect();
        let padding = "0".repeat(zeros);
        let suffix = match unit {
            Unit::Exponent(_) if power != 0 => format!("e{power}"),
            Unit::Exponent(_) => String::new(),
            _ => {
                let found = DECIMAL_SUFFIXES.iter().find(|(p, _)| *p == power);
                found.map_or("", |(_, suffix)| suffix).to_owned()
            }
        };
        format!("{sign}{digits}{padding}{suffix}")
    }

    /// Binary suffixes are for whole numbers from 1024 up; they end at the largest `i64`.
    fn write_binary(&self) -> Option<String> {
        if self.exponent < 0 {
            return None;
        }
        let mut number: u64 = 0;
        let zeros = std::iter::repeat_n(&0, usize::try_from(self.exponent).unwrap_or(usize::MAX));
        for digit in self.digits.iter().chain(zeros) {
            number = number.saturating_mul(10).saturating_add((*digit).into());
            if number > i64::MAX as u64 {
                number = i64::MAX as u64;
                break;
            }
        }
        if number < 1024 {
            return None;
        }
        let mut power = 0;
        while number.is_multiple_of(1024) && power + 1 < BINARY_SUFFIXES.len() {
            number /= 1024;
            power += 1;
        }
        Some(format!("{number}{}", BINARY_SUFFIXES[power]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What kube-apiserver v1.36.4 answered for `emptyDir.sizeLimit`.
    #[test]
    fn canonical_forms() {
        for (text, want) in [
            ("1000", "1k"),
            ("2000", "2k"),
            ("0.1", "100m"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1073741824", "1073741824"),
            ("1500M", "1500M"),
            ("1.5Gi", "1536Mi"),
            ("1.25Gi", "1280Mi"),
            ("0.5Mi", "512Ki"),
            ("0.5Ki", "512"),
            ("1000Ki", "1000Ki"),
            ("1025Ki", "1025Ki"),
            ("1048576Ki", "1Gi"),
            ("0.1Ki", "102400m"),
            ("0.3Gi", "322122547200m"),
            ("16Ei", "9223372036854775807"),
            ("999999999999999999999Ki", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("99999999999999999999", "99999999999999999999"),
            ("100E", "100E"),
            ("1000T", "1P"),
            ("1000000k", "1G"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e+3", "1e+3"),
            ("1e03", "1e03"),
            ("1.e3", "1.e3"),
            ("1500e0", "1500e0"),
            ("1e4", "10e3"),
            ("15e2", "1500"),
            ("1.5e3", "1500"),
            ("0.1e1", "1"),
            ("1000e3", "1e6"),
            ("1e19", "10e18"),
            ("1e99", "1e99"),
            ("1e-9", "1e-9"),
            ("1.1e-9", "2e-9"),
            ("1.123456789123", "1123456790n"),
            ("-1.123456789123", "-1123456790n"),
            ("0.0000000001", "1n"),
            ("-1000", "-1k"),
            ("-1.5Gi", "-1536Mi"),
            ("+1", "+1"),
            ("+.5", "500m"),
            ("010m", "010m"),
            ("02Ki", "02Ki"),
            ("5.", "5."),
            ("1.000Ki", "1Ki"),
            ("0", "0"),
            ("0m", "0"),
            ("-0", "0"),
            (".", "0"),
            (" 1 ", "1"),
        ] {
            let got = canonical(text, NANO).unwrap();
            assert_eq!(got.as_deref().unwrap_or(text), want, "{text}");
        }
    }

    #[test]
    fn resources_are_rounded_up_to_a_thousandth() {
        for (text, want) in [
            ("1n", "1m"),
            ("5u", "1m"),
            ("1.0001", "1001m"),
            ("1e-10", "1e-3"),
            ("-0.5n", "-1m"),
            ("10000000000000000000n", "10G"),
            ("100m", "100m"),
        ] {
            let got = canonical(text, MILLI).unwrap();
            assert_eq!(got.as_deref().unwrap_or(text), want, "{text}");
        }
    }

    #[test]
    fn errors_name_the_problem() {
        for (text, want) in [
            ("", BAD_FORMAT),
            ("1x", BAD_FORMAT),
            ("1.2.3", BAD_FORMAT),
            ("0x1", BAD_FORMAT),
            ("1_0", BAD_FORMAT),
            ("1e5Ki", BAD_FORMAT),
            ("１", BAD_FORMAT),
            ("1e", BAD_SUFFIX),
            ("--1", BAD_SUFFIX),
            ("1K", BAD_SUFFIX),
            ("1kk", BAD_SUFFIX),
            ("1e9999999999999", BAD_SUFFIX),
        ] {
            assert_eq!(canonical(text, NANO), Err(want), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable(text in "[+-]?[0-9]{0,25}\\.?[0-9]{0,12}(m|u|n|k|M|E|Ki|Gi|Ei|e-?[0-9]{1,2})?") {
            if let Ok(Some(once)) = canonical(&text, NANO) {
                prop_assert_eq!(canonical(&once, NANO), Ok(None), "{} became {}", text, once);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}|[-+.0-9eEinumkKMGTP]{0,12}") {
            let _ = canonical(&text, MILLI);
        }
    }
}
