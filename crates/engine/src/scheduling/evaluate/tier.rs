//! The tier of a node, a rank that is compared before the score, as reports show it.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::model::Name;

/// What a plugin orders nodes by before any score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// The lowest wins.
    pub rank: u32,
    /// The unit of a ResourcePolicy.
    pub name: Name,
}

/// The order of two nodes by their tiers. Names play no part.
pub fn by_tier(a: &[Tier], b: &[Tier]) -> Ordering {
    let ranks = |tiers: &[Tier]| tiers.iter().map(|tier| tier.rank).collect::<Vec<u32>>();
    ranks(a).cmp(&ranks(b))
}
