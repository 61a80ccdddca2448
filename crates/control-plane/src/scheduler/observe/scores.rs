//! Recorded scores: the number of nodes to record, the latest scores, and their log.
//!
//! The deciding thread only stores them; other threads log and read them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::scheduling::scheduler::Scores;
use tokio::sync::mpsc;

use crate::scheduler::observe::score_table::ScoreTable;

/// Decisions whose scores are kept, and the nodes of all of them.
const MOST_KEPT: usize = 100;
const MOST_NODES: usize = 10_000;
/// Tables that wait for the log.
const MOST_UNLOGGED: usize = 256;

pub(crate) struct ScoreRecorder {
    top: AtomicU16,
    kept: Mutex<VecDeque<Arc<Scores>>>,
    to_log: mpsc::Sender<Arc<Scores>>,
    /// Tables that were not logged.
    left_out: AtomicU64,
}

/// Writes score tables into the log.
pub(crate) struct ScoreLog(mpsc::Receiver<Arc<Scores>>);

impl ScoreRecorder {
    pub(crate) fn new(top: u16) -> (Arc<Self>, ScoreLog) {
        let (to_log, unlogged) = mpsc::channel(MOST_UNLOGGED);
        let recorder = Self {
            top: AtomicU16::new(top),
            kept: Mutex::default(),
            to_log,
            left_out: AtomicU64::new(0),
        };
        (Arc::new(recorder), ScoreLog(unlogged))
    }

    /// The number of nodes whose scores are recorded; 0 for none.
    pub(crate) fn top(&self) -> u16 {
        self.top.load(Ordering::Relaxed)
    }

    pub(crate) fn switch(&self, top: u16) {
        self.top.store(top, Ordering::Relaxed);
        match top {
            0 => tracing::info!("stopped recording scores"),
            _ => tracing::info!(
                top,
                "recording the scores of the best nodes of each decision"
            ),
        }
    }

    /// Never waits for the log.
    pub(crate) fn add(&self, scores: Scores) {
        let scores = Arc::new(scores);
        if self.to_log.try_send(scores.clone()).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(scores);
        let mut nodes: usize = kept.iter().map(|scores| scores.nodes.len()).sum();
        while kept.len() > MOST_KEPT || nodes > MOST_NODES {
            let Some(oldest) = kept.pop_front() else {
                break;
            };
            nodes -= oldest.nodes.len();
        }
    }

    /// The latest ones, newest first.
    pub(crate) fn latest(&self) -> Vec<Arc<Scores>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().cloned().collect()
    }
}

impl ScoreLog {
    /// Logs tables under a target of their own, which is logged at any log level.
    pub(crate) async fn write(mut self, recorder: Arc<ScoreRecorder>) {
        while let Some(scores) = self.0.recv().await {
            tracing::info!(target: "scores", "{}", ScoreTable::from(&*scores));
            let left_out = recorder.left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                tracing::warn!(
                    "skipped {left_out} score tables: decisions are faster than the log"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::model::Timestamp;
    use engine::scheduling::scheduler::NodeScores;

    use super::*;

    fn scores(name: usize, nodes: usize) -> Scores {
        let row = NodeScores {
            node: "n".into(),
            score: 0,
            scores: Vec::new(),
            tiers: Vec::new(),
        };
        Scores {
            at: Timestamp::default(),
            namespace: "default".into(),
            name: name.to_string().into(),
            node: "n".into(),
            top: 10,
            feasible_nodes: nodes,
            plugins: Vec::new(),
            nodes: vec![row; nodes],
        }
    }

    #[test]
    fn recorded_scores_are_bounded_and_recording_does_not_wait() {
        let (recorder, _log) = ScoreRecorder::new(10);
        for name in 0..3 * MOST_UNLOGGED {
            recorder.add(scores(name, 1));
        }
        let latest = recorder.latest();
        assert_eq!(latest.len(), MOST_KEPT);
        assert_eq!(*latest[0].name, (3 * MOST_UNLOGGED - 1).to_string());
        let left_out = recorder.left_out.load(Ordering::Relaxed);
        assert_eq!(left_out, 2 * MOST_UNLOGGED as u64);
        for name in 0..20 {
            recorder.add(scores(name, 1_000));
        }
        assert_eq!(recorder.latest().len(), MOST_NODES / 1_000);
    }
}
