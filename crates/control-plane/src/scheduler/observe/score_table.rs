//! The table of the best nodes for a pod: in the log, from the Score API, and by `tidepool explain pod --scores`. It has
//! Koordinator's format, so that the same tools read both.

use std::borrow::Cow;
use std::fmt;

use engine::scheduling::evaluate::Tier;
use engine::scheduling::scheduler::Scores;

/// Displayed without an end of line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreTable<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The number of requested nodes; there may be fewer.
    pub top: usize,
    pub feasible_nodes: usize,
    pub plugins: Vec<&'a str>,
    /// Best first.
    pub rows: Vec<ScoreRow<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreRow<'a> {
    pub node: &'a str,
    pub score: i64,
    /// In the order of the plugins, weights included.
    pub scores: Cow<'a, [i64]>,
    /// Compared before the score. Without tiers the table has no column for them.
    pub tiers: &'a [Tier],
}

impl<'a> From<&'a Scores> for ScoreTable<'a> {
    fn from(scores: &'a Scores) -> Self {
        let rows = scores.nodes.iter().map(|row| ScoreRow {
            node: &row.node,
            score: row.score,
            scores: Cow::Borrowed(&row.scores),
            tiers: &row.tiers,
        });
        Self {
            namespace: &scores.namespace,
            name: &scores.name,
            top: scores.top.into(),
            feasible_nodes: scores.feasible_nodes,
            plugins: scores.plugins.clone(),
            rows: rows.collect(),
        }
    }
}

impl fmt::Display for ScoreTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            name,
            top,
            feasible_nodes,
            plugins,
            rows,
        } = self;
        let named = plugins.join(" ");
        write!(
            f,
            "Top{top} scores for Pod: {namespace}/{name}, feasibleNodes: {feasible_nodes}, plugins:[{named}]"
        )?;
        let has_tiers = rows.iter().any(|row| !row.tiers.is_empty());
        f.write_str("\n| # | Pod | Node |")?;
        f.write_str(if has_tiers {
            " Unit | Score |"
        } else {
            " Score |"
        })?;
        plugins
            .iter()
            .try_for_each(|plugin| write!(f, " {plugin} |"))?;
        // Numbers are aligned right.
        f.write_str("\n| --- | --- | --- |")?;
        f.write_str(if has_tiers { " --- | ---:|" } else { " ---:|" })?;
        plugins.iter().try_for_each(|_| f.write_str(" ---:|"))?;
        for (
            rank,
            ScoreRow {
                node,
                score,
                scores,
                tiers,
            },
        ) in rows.iter().enumerate()
        {
            write!(f, "\n| {rank} | {namespace}/{name} | {node} |")?;
            if has_tiers {
                let names: Vec<&str> = tiers.iter().map(|tier| &*tier.name).collect();
                write!(f, " {} |", names.join(" "))?;
            }
            write!(f, " {score} |")?;
            scores
                .iter()
                .try_for_each(|score| write!(f, " {score} |"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::model::Timestamp;
    use engine::scheduling::scheduler::NodeScores;

    use super::*;

    #[test]
    fn a_table_is_markdown_under_a_heading() {
        let row = |node: &str, plus| NodeScores {
            node: node.into(),
            score: plus + 200,
            scores: vec![plus, 200],
            tiers: Vec::new(),
        };
        let scores = Scores {
            at: Timestamp::default(),
            namespace: "default".into(),
            name: "web-1".into(),
            node: "n1".into(),
            top: 10,
            feasible_nodes: 2,
            plugins: vec!["NodeResourcesFitPlus", "ScarceResourceAvoidance"],
            nodes: vec![row("n1", 160), row("n2", 110)],
        };
        let want = "\
Top10 scores for Pod: default/web-1, feasibleNodes: 2, plugins:[NodeResourcesFitPlus ScarceResourceAvoidance]
| # | Pod | Node | Score | NodeResourcesFitPlus | ScarceResourceAvoidance |
| --- | --- | --- | ---:| ---:| ---:|
| 0 | default/web-1 | n1 | 360 | 160 | 200 |
| 1 | default/web-1 | n2 | 310 | 110 | 200 |";
        assert_eq!(ScoreTable::from(&scores).to_string(), want);
        let mut tiered = scores;
        for (row, name) in tiered.nodes.iter_mut().zip(["reserved", "spot"]) {
            row.tiers.push(Tier {
                rank: 1,
                name: name.into(),
            });
        }
        let want = "\
| # | Pod | Node | Unit | Score | NodeResourcesFitPlus | ScarceResourceAvoidance |
| --- | --- | --- | --- | ---:| ---:| ---:|
| 0 | default/web-1 | n1 | reserved | 360 | 160 | 200 |
| 1 | default/web-1 | n2 | spot | 310 | 110 | 200 |";
        let text = ScoreTable::from(&tiered).to_string();
        assert_eq!(text.split_once('\n').unwrap().1, want);
    }
}
