//! Kubernetes quantities (`500m`, `1.5Gi`, `12e6`) as exact integers, never through floating point.

use std::cmp::Ordering;

/// An exact amount in billionths, the finest grain Kubernetes keeps. Larger magnitudes than `i64::MAX` units are capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantity(i128);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity: use a number such as 2, 0.5, 500m, 1e3, 128Mi or 1G")]
pub struct QuantityError(String);

const NANO: i128 = 1_000_000_000;
const CAP: i128 = i64::MAX as i128 * NANO;
/// Beyond this many decimal places nothing changes: the value is capped or one billionth.
const FAR: i64 = 60;

impl Quantity {
    pub const ZERO: Self = Self(0);

    pub fn from_units(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    pub fn from_milli(milli: i64) -> Self {
        Self(i128::from(milli) * (NANO / 1000))
    }

    /// As Kubernetes parses, except that what would wrap around there is capped here (`10E`, `1e400`).
    ///
    /// A suffix without digits (`m`, `Ki`, `.`) is 0, as there; [`Quantity::parse_strict`] refuses it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError(text.to_owned());
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(error()),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let number = unsigned
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(error());
        }
        let (binary, decimal) = scale(suffix).ok_or_else(error)?;
        let nanos = magnitude(whole, fraction, binary, decimal);
        Ok(Self(if negative { -nanos } else { nanos }))
    }

    /// Like [`Quantity::parse`], but a quantity must have a digit: for objects whose schema is ours.
    pub fn parse_strict(text: &str) -> Result<Self, QuantityError> {
        if text.bytes().any(|b| b.is_ascii_digit()) {
            Self::parse(text)
        } else {
            Err(QuantityError(text.to_owned()))
        }
    }

    /// Whole units, rounded away from zero.
    pub fn units(self) -> i64 {
        saturate(divide_away_from_zero(self.0, NANO))
    }

    /// Thousandths, rounded away from zero; capped where Kubernetes wraps around.
    pub fn milli(self) -> i64 {
        saturate(divide_away_from_zero(self.0, NANO / 1000))
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        // Both are within the cap, so the sum fits in an i128.
        Self((self.0 + other.0).clamp(-CAP, CAP))
    }
}

impl std::ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The power of two and the power of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            // A number too long for i64 is an error there, too.
            (0, exponent.parse::<i64>().ok()?)
        }
    })
}

/// `whole.fraction * 2^binary * 10^decimal` in billionths, rounded up, capped.
fn magnitude(whole: &str, fraction: &str, binary: u32, decimal: i64) -> i128 {
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .skip_while(|b| *b == b'0');
    let mut exponent = decimal
        .saturating_add(9)
        .saturating_sub(fraction.len() as i64);
    let mut mantissa: i128 = 0;
    let mut dropped = false;
    for (kept, digit) in digits.enumerate() {
        // 19 significant digits reach the cap; more only matter for rounding up.
        if kept < 30 {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        } else {
            dropped |= digit != b'0';
            exponent = exponent.saturating_add(1);
        }
    }
    if mantissa == 0 {
        return 0;
    }
    let exponent = exponent.clamp(-FAR, FAR);
    let scaled = if exponent >= 0 {
        ten_to(exponent)
            .and_then(|ten| mantissa.checked_mul(ten))
            .and_then(|v| v.checked_mul(1 << binary))
    } else {
        divide_up(mantissa, binary, exponent.unsigned_abs(), dropped)
    };
    scaled.map_or(CAP, |v| v.min(CAP))
}

fn ten_to(exponent: i64) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// `mantissa * 2^binary / 10^places`, rounded up; `None` when it is beyond the cap.
fn divide_up(mut mantissa: i128, binary: u32, places: u64, mut dropped: bool) -> Option<i128> {
    // 10^37 is the largest power that leaves room for a doubling; digits beyond it are far below a billionth.
    let beyond = places.saturating_sub(37);
    for _ in 0..beyond {
        dropped |= mantissa % 10 != 0;
        mantissa /= 10;
    }
    let ten = ten_to((places - beyond) as i64)?;
    let (mut quotient, mut rest) = (mantissa / ten, mantissa % ten);
    for _ in 0..binary {
        rest *= 2;
        quotient = quotient
            .checked_mul(2)?
            .checked_add(i128::from(rest >= ten))?;
        rest %= ten;
    }
    quotient.checked_add(i128::from(rest != 0 || dropped))
}

fn divide_away_from_zero(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    match (value % by).cmp(&0) {
        Ordering::Less => quotient - 1,
        Ordering::Equal => quotient,
        Ordering::Greater => quotient + 1,
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: i64 = i64::MAX;

    #[test]
    fn accepted_texts() {
        for (text, units, milli) in [
            ("1E", 1_000_000_000_000_000_000, MAX),
            ("2E", 2_000_000_000_000_000_000, MAX),
            ("1Ei", 1 << 60, MAX),
            ("1E3", 1000, 1_000_000),
            ("1e3", 1000, 1_000_000),
            ("12e6", 12_000_000, 12_000_000_000),
            ("1.5e-3", 1, 2),
            ("0.5Gi", 536_870_912, 536_870_912_000),
            ("100m", 1, 100),
            ("1n", 1, 1),
            ("0.1", 1, 100),
            (
                "9007199254740993",
                9_007_199_254_740_993,
                9_007_199_254_740_993_000,
            ),
            ("9223372036854775807", MAX, MAX),
            ("8Ei", MAX, MAX),
            ("10E", MAX, MAX),
            ("1e400", MAX, MAX),
            ("1e-400", 1, 1),
            ("m", 0, 0),
            ("Ki", 0, 0),
            ("+", 0, 0),
            (".", 0, 0),
            ("1.G", 1_000_000_000, 1_000_000_000_000),
            ("5.", 5, 5000),
            (".5", 1, 500),
            ("00012", 12, 12_000),
            ("-100m", -1, -100),
            ("0.0000000001", 1, 1),
            ("1.0000000000000000000000000000000000001", 2, 1001),
            (
                "1.23456789012345678901234567890123Ei",
                1_423_359_869_420_436_338,
                MAX,
            ),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(
                (quantity.units(), quantity.milli()),
                (units, milli),
                "{text}"
            );
        }
    }

    #[test]
    fn refused_texts() {
        for text in [
            "+-5", "--5", "3K", "8gi", "1 Gi", "1_000", "inf", "nan", "", "1e", "1e+", "1.2.3",
            "é", "1é",
        ] {
            assert_eq!(
                Quantity::parse(text),
                Err(QuantityError(text.to_owned())),
                "{text}"
            );
        }
        for text in ["m", "Ki", "+", "."] {
            assert!(Quantity::parse_strict(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sums_are_exact_before_rounding() {
        let third = Quantity::parse("0.3m").unwrap();
        assert_eq!((third + third + third).milli(), 1);
        let most = Quantity::parse("8Ei").unwrap();
        assert_eq!((most + most).units(), MAX, "a sum is capped");
    }
}
