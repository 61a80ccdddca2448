//! Figures of the node agent: each is computed for random inputs by our engine and by the code of the kubelet, of Koordinator's agent
//! or of Katalyst's agent.

mod katalyst;
mod koordlet;
mod kube;

use anyhow::{Context, Result};
use serde_json::Value;

use super::oracle::Oracle;
use super::random::Random;
use super::sample::Sample;

pub(super) use katalyst::compare as katalyst;
pub(super) use koordlet::compare as koordlet;
pub(super) use kube::compare as kube;

/// A question in the form of the oracle, and our answer in the form of its answer.
struct NodeQuestion {
    asked: Value,
    ours: Value,
}

/// One kind of questions.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    generate: fn(&mut Random) -> NodeQuestion,
    /// Where we differ on purpose, so that no case asks for it.
    listed: &'static [&'static str],
}

/// The largest relative difference of two numbers that count as equal: the last digits depend on the order of operations.
const TOLERANCE: f64 = 1e-9;

/// Asks every kind of question so many times. The last line of each is `parity NAME FIGURE: N cases, D differences`.
fn compare(
    name: &str,
    figures: &[Figure],
    oracle: &mut Oracle,
    sample: &Sample,
    pick: fn(Value) -> Value,
) -> Result<bool> {
    let mut agree = true;
    for (number, figure) in (0_u64..).zip(figures) {
        let mut different = 0_u64;
        for index in sample.indices() {
            let mut random = Random::for_case(sample.seed.wrapping_add(number << 32), index);
            let question = (figure.generate)(&mut random);
            let theirs: Value = oracle
                .ask(&question.asked)
                .with_context(|| format!("case {index} of {}", figure.name))?;
            let theirs = pick(theirs);
            if equal(&question.ours, &theirs) {
                continue;
            }
            different += 1;
            if different <= 3 {
                println!("{}: {}", figure.name, sample.differs(index));
                println!("    asked {}", question.asked);
                println!("    ours {}, theirs {theirs}", question.ours);
            }
        }
        for difference in figure.listed {
            println!("    differs on purpose: {difference}");
        }
        println!(
            "parity {name} {} --seed {}: {} cases, {different} differences",
            figure.name,
            sample.seed,
            sample.cases()
        );
        agree &= different == 0;
    }
    Ok(agree)
}

/// Numbers may differ in their last digits; a list or object that is absent is an empty one.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else {
                return one == other;
            };
            (one - other).abs() <= TOLERANCE * one.abs().max(other.abs())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys());
            let get = |object: &serde_json::Map<String, Value>, key: &String| {
                object.get(key).cloned().unwrap_or(Value::Null)
            };
            keys.clone()
                .all(|key| equal(&get(one, key), &get(other, key)))
        }
        (Value::Array(list), Value::Null) | (Value::Null, Value::Array(list)) => list.is_empty(),
        (Value::Object(map), Value::Null) | (Value::Null, Value::Object(map)) => map.is_empty(),
        _ => one == other,
    }
}

/// A number between two others, in steps of a thousandth of the range.
fn fraction(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.below(1001) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equality_of_answers() {
        for (one, other, want) in [
            (json!(1), json!(1.0), true),
            (json!(1.0), json!(1.000_000_000_001), true),
            (json!(1.0), json!(1.001), false),
            (json!([1, 2]), json!([1]), false),
            (json!({"a": []}), json!({}), true),
            (json!({"a": 1}), json!({}), false),
            (json!(null), json!([]), true),
            (json!("a"), json!("b"), false),
        ] {
            assert_eq!(equal(&one, &other), want, "{one} {other}");
        }
    }

    /// Every generator answers without the oracle.
    #[test]
    fn questions_are_generated() {
        let all = [katalyst::FIGURES, koordlet::FIGURES, kube::FIGURES].concat();
        for figure in &all {
            for index in 0..200 {
                let question = (figure.generate)(&mut Random::for_case(1, index));
                assert!(question.asked.is_object(), "{}", figure.name);
            }
        }
    }
}
