//! Figures with the sum behind them.
//!
//! The agent writes a list of [`Figure`]s as JSON into the annotation `tidepool.io/terms` of the CNR; `tidepool explain node` prints
//! them.

use serde::{Deserialize, Serialize};

/// An amount of both resources that nodes lend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuMemory {
    /// Thousandths of a core.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
}

impl CpuMemory {
    pub const ZERO: Self = Self {
        milli_cpu: 0,
        memory: 0,
    };

    pub fn new(milli_cpu: i64, memory: i64) -> Self {
        Self { milli_cpu, memory }
    }

    /// Applies a function to both resources.
    pub fn zip(self, other: Self, f: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            milli_cpu: f(self.milli_cpu, other.milli_cpu),
            memory: f(self.memory, other.memory),
        }
    }

    /// Saturates.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, i64::saturating_add)
    }

    /// Saturates; may be negative.
    pub fn minus(self, other: Self) -> Self {
        self.zip(other, i64::saturating_sub)
    }

    pub fn min(self, other: Self) -> Self {
        self.zip(other, i64::min)
    }

    pub fn max(self, other: Self) -> Self {
        self.zip(other, i64::max)
    }

    /// Nothing below zero.
    pub fn positive(self) -> Self {
        self.max(Self::ZERO)
    }
}

impl std::iter::Sum for CpuMemory {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

/// One reported number and the terms from which it is computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// The field of the report, such as `reclaimed cpu`.
    pub name: String,
    /// `milli-cores` or `bytes`.
    pub unit: String,
    pub value: i64,
    pub terms: Vec<FigureTerm>,
}

/// A named amount of a sum. `limit` terms bound the sum so far instead of adding to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureTerm {
    pub name: String,
    /// Added to the sum, so what is taken away is negative; for a limit: the largest value.
    pub amount: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limit: bool,
}

impl Figure {
    pub(crate) fn new(name: &str, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            value: 0,
            terms: Vec::new(),
        }
    }

    /// Adds an amount, which may be negative.
    pub(crate) fn add(&mut self, name: &str, amount: i64) {
        self.value = self.value.saturating_add(amount);
        self.push(name, amount, false);
    }

    /// Bounds the sum so far.
    pub(crate) fn limit(&mut self, name: &str, most: i64) {
        self.value = self.value.min(most);
        self.push(name, most, true);
    }

    /// Raises a negative sum to zero.
    pub(crate) fn at_least(&mut self, name: &str, least: i64) {
        if self.value < least {
            self.add(name, least.saturating_sub(self.value));
        }
    }

    fn push(&mut self, name: &str, amount: i64, limit: bool) {
        self.terms.push(FigureTerm {
            name: name.to_owned(),
            amount,
            limit,
        });
    }

    /// The value that the terms give: what a reader of the annotation computes.
    pub fn recompute(&self) -> i64 {
        self.terms.iter().fold(0, |sum: i64, term| {
            if term.limit {
                sum.min(term.amount)
            } else {
                sum.saturating_add(term.amount)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_sum_of_its_terms() {
        let mut figure = Figure::new("reclaimed cpu", "milli-cores");
        figure.add("CPUs", 4000);
        figure.add("online use", -1500);
        assert_eq!(figure.value, 2500);
        figure.limit("suppression threshold", 1200);
        figure.add("reserve", -1500);
        figure.at_least("never below zero", 0);
        assert_eq!((figure.value, figure.recompute()), (0, 0));
        let json = serde_json::to_string(&figure).unwrap();
        assert!(json.contains(r#"{"name":"suppression threshold","amount":1200,"limit":true}"#));
        assert!(json.contains(r#"{"name":"CPUs","amount":4000}"#));
        assert_eq!(serde_json::from_str::<Figure>(&json).unwrap(), figure);
    }
}
