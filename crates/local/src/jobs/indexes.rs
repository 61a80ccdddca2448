//! Indexes of a Job, as the field `completedIndexes` writes them: `0-2,5`.
//!
//! They are kept as runs, because a status can name two billion indexes in a few characters.

use std::collections::BTreeMap;
use std::fmt;

/// The first and the last index of each run; there is a gap between two runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexes(BTreeMap<i32, i32>);

impl Indexes {
    /// Ignores invalid parts and indexes that are not below `limit`.
    pub(super) fn parse(text: &str, limit: i32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.add(first.max(0), last.min(limit.saturating_sub(1)));
            }
        }
        indexes
    }

    pub(super) fn insert(&mut self, index: i32) {
        self.add(index, index);
    }

    /// Adds a run; it becomes one with those that it overlaps or touches.
    fn add(&mut self, mut first: i32, mut last: i32) {
        if first > last {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..=last.saturating_add(1)).next_back()
            && end >= first.saturating_sub(1)
        {
            self.0.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.0.insert(first, last);
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let run = self.0.range(..=index).next_back();
        run.is_some_and(|(_, last)| index <= *last)
    }

    /// How many indexes these are.
    pub(super) fn count(&self) -> i32 {
        let lengths = self
            .0
            .iter()
            .map(|(first, last)| last.saturating_sub(*first).saturating_add(1));
        lengths.fold(0, i32::saturating_add)
    }

    /// The indexes from 0 to below `limit` that are not here, in order.
    pub(super) fn missing(&self, limit: i32) -> impl Iterator<Item = i32> {
        let runs = self.0.iter().map(|(first, last)| (*first, *last));
        let mut next = 0;
        runs.chain([(limit, limit)]).flat_map(move |(first, last)| {
            let gap = next..first.min(limit);
            next = next.max(last.saturating_add(1));
            gap
        })
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match last.saturating_sub(*first) {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lists_are_written_short() {
        for text in ["", "3", "0,1", "0-2", "0-2,4,6,7,9-12"] {
            assert_eq!(Indexes::parse(text, 100).to_string(), text);
        }
        for (text, want) in [
            ("0-99999", "0-3"),
            ("x,2,-1", "2"),
            ("3-1", ""),
            ("0-2147483647", "0-3"),
            ("3,1,0,2", "0-3"),
            ("0,2,0-1", "0-2"),
        ] {
            assert_eq!(Indexes::parse(text, 4).to_string(), want, "{text}");
        }
    }

    #[test]
    fn runs_answer_as_single_indexes_would() {
        let mut dice: u32 = 7;
        let mut below = |limit: u32| {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i32::try_from((dice >> 8) % limit).unwrap()
        };
        for _ in 0..1000 {
            let (mut runs, mut single) = (Indexes::default(), std::collections::BTreeSet::new());
            for _ in 0..below(20) {
                let index = below(20);
                runs.insert(index);
                single.insert(index);
            }
            let limit = below(24);
            let want: Vec<i32> = (0..limit).filter(|it| !single.contains(it)).collect();
            assert_eq!(runs.missing(limit).collect::<Vec<_>>(), want, "{runs}");
            assert_eq!(usize::try_from(runs.count()), Ok(single.len()), "{runs}");
            for index in 0..24 {
                assert_eq!(runs.contains(index), single.contains(&index), "{runs}");
            }
        }
    }

    #[test]
    fn two_billion_indexes_take_no_memory() {
        let indexes = Indexes::parse("0-2147483600", i32::MAX);
        assert_eq!(indexes.count(), 2_147_483_601);
        assert_eq!(indexes.missing(i32::MAX).next(), Some(2_147_483_601));
        assert!(indexes.contains(2_147_483_600) && !indexes.contains(2_147_483_601));
    }
}
