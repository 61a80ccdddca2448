//! A seed that changes with every commit, so that every landing tries new random cases, and the same checkout the same ones.

use anyhow::{Context, Result};

use crate::process;

pub(crate) fn of_commit() -> Result<u32> {
    let hash = process::read(process::git().args(["rev-parse", "HEAD"]))
        .context("the seed of random cases comes from the commit")?;
    from_hash(&hash)
}

fn from_hash(hash: &str) -> Result<u32> {
    let digits = hash.get(..8).unwrap_or(hash);
    u32::from_str_radix(digits, 16).with_context(|| format!("`{hash}` is not a commit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_the_start_of_the_commits_hash() {
        assert_eq!(from_hash("0000002a8f1e\n").unwrap(), 42);
        assert!(from_hash("fatal").is_err());
    }
}
