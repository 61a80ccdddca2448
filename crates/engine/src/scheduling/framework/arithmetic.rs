//! Exact arithmetic that scorers share: the same integers and the same floating-point steps as kube-scheduler.

/// The largest score a plugin may give.
pub const MAX_SCORE: i64 = 100;

/// Whether the largest raw score is the best or the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Reverse,
}

/// Scales so that the largest becomes 100, or 0 in reverse.
pub fn default_normalize(scores: &mut [i64], direction: Direction) {
    let max = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        let scaled = if max == 0 {
            0
        } else {
            MAX_SCORE.wrapping_mul(*score) / max
        };
        *score = match direction {
            Direction::Forward if max == 0 => *score,
            Direction::Forward => scaled,
            Direction::Reverse => MAX_SCORE - scaled,
        };
    }
}

/// A function given by points of increasing x, straight between them and flat outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLine(Vec<(i64, i64)>);

impl BrokenLine {
    pub fn new(points: Vec<(i64, i64)>) -> Self {
        Self(points)
    }

    /// In integers; divisions truncate towards zero.
    pub fn at(&self, x: i64) -> i64 {
        match self.0.iter().position(|(at, _)| x <= *at) {
            Some(0) => self.0[0].1,
            Some(i) => {
                let ((x0, y0), (x1, y1)) = (self.0[i - 1], self.0[i]);
                y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            }
            None => self.0.last().map_or(0, |(_, y)| *y),
        }
    }
}

/// The natural logarithm with the steps of FreeBSD's `e_log.c`, which Go follows: the last bit decides roundings.
pub fn ln(x: f64) -> f64 {
    const LN2_HI: f64 = 6.931_471_803_691_238e-1;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    const L: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    if !x.is_normal() || x < 0.0 {
        return x.ln();
    }
    // x = 2^k * f1 with sqrt(2)/2 <= f1 < sqrt(2)
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1022;
    let mut fraction = f64::from_bits((bits & !(0x7ff << 52)) | (1022 << 52));
    if fraction < std::f64::consts::SQRT_2 / 2.0 {
        fraction *= 2.0;
        exponent -= 1;
    }
    let f = fraction - 1.0;
    let k = f64::from(exponent);
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let t1 = s2 * (L[0] + s4 * (L[2] + s4 * (L[4] + s4 * L[6])));
    let t2 = s4 * (L[1] + s4 * (L[3] + s4 * L[5]));
    let r = t1 + t2;
    let half_square = 0.5 * f * f;
    k * LN2_HI - ((half_square - (s * (half_square + r) + k * LN2_LO)) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalising() {
        use Direction::*;
        for (direction, scores, want) in [
            (Forward, vec![1, 2, 3, 4], vec![25, 50, 75, 100]),
            (Reverse, vec![1, 2, 3, 4], vec![75, 50, 25, 0]),
            (Forward, vec![1000, 10, 20, 30], vec![100, 1, 2, 3]),
            (Reverse, vec![1000, 10, 20, 30], vec![0, 99, 98, 97]),
            (Forward, vec![1000, 1, 1, 1], vec![100, 0, 0, 0]),
            (Forward, vec![0, 0], vec![0, 0]),
            (Reverse, vec![0, 0], vec![100, 100]),
            (Reverse, vec![], vec![]),
        ] {
            let mut found = scores.clone();
            default_normalize(&mut found, direction);
            assert_eq!(found, want, "{scores:?} {direction:?}");
        }
    }

    #[test]
    fn broken_lines() {
        let rising = BrokenLine::new(vec![(10, 1), (90, 9)]);
        for (x, y) in [
            (-10, 1),
            (9, 1),
            (15, 1),
            (19, 1),
            (20, 2),
            (89, 8),
            (90, 9),
            (110, 9),
        ] {
            assert_eq!(rising.at(x), y, "at {x}");
        }
        let bent = BrokenLine::new(vec![(0, 2), (40, 10), (100, 0)]);
        for (x, y) in [(20, 6), (30, 8), (40, 10), (70, 5), (100, 0)] {
            assert_eq!(bent.at(x), y, "at {x}");
        }
    }

    #[test]
    fn logarithms_are_within_one_unit_of_the_last_place() {
        for n in 2..200_000 {
            let (ours, std) = (ln(f64::from(n)), f64::from(n).ln());
            assert!(
                (ours.to_bits() as i64 - std.to_bits() as i64).abs() <= 1,
                "ln({n}): {ours} and {std}"
            );
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(2.0), std::f64::consts::LN_2);
    }
}
