//! Scores that somebody wants to see: how many are wanted, the latest ones, and their way into the log.
//!
//! The deciding thread only leaves them here; whoever writes or reads them does so on his own time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::scheduler::Scores;
use tokio::sync::mpsc;

use crate::scheduler::observe::score_table::ScoreTable;

/// Decisions of which the scores are kept, and nodes in all of them together.
const MOST_KEPT: usize = 100;
const MOST_NODES: usize = 10_000;
/// Tables that wait to be logged.
const MOST_UNLOGGED: usize = 256;

pub(crate) struct Recorder {
    top: AtomicU16,
    kept: Mutex<VecDeque<Arc<Scores>>>,
    to_log: mpsc::Sender<Arc<Scores>>,
    /// Tables that the log had no room for.
    left_out: AtomicU64,
}

/// The way into the log, for whoever has the time.
pub(crate) struct Log(mpsc::Receiver<Arc<Scores>>);

impl Recorder {
    pub(crate) fn new(top: u16) -> (Arc<Self>, Log) {
        let (to_log, unlogged) = mpsc::channel(MOST_UNLOGGED);
        let recorder = Self {
            top: AtomicU16::new(top),
            kept: Mutex::default(),
            to_log,
            left_out: AtomicU64::new(0),
        };
        (Arc::new(recorder), Log(unlogged))
    }

    /// Of how many nodes the scores are wanted; 0 for none.
    pub(crate) fn top(&self) -> u16 {
        self.top.load(Ordering::Relaxed)
    }

    pub(crate) fn switch(&self, top: u16) {
        self.top.store(top, Ordering::Relaxed);
        match top {
            0 => tracing::info!("scores are not shown any more"),
            _ => tracing::info!("the scores of the best {top} nodes are shown of each decision"),
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

impl Log {
    /// Writes tables as they come. They have a target of their own: whoever asks for them gets them, however little else
    /// is logged.
    pub(crate) async fn write(mut self, recorder: Arc<Recorder>) {
        while let Some(scores) = self.0.recv().await {
            tracing::info!(target: "scores", "{}", ScoreTable::from(&*scores));
            let left_out = recorder.left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                tracing::warn!(
                    "{left_out} tables of scores are not in the log, because decisions are faster than it"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::model::Timestamp;
    use engine::scheduler::NodeScores;

    use super::*;

    fn scores(name: usize, nodes: usize) -> Scores {
        let row = NodeScores {
            node: "n".into(),
            score: 0,
            scores: Vec::new(),
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
    fn what_is_kept_is_bounded_and_nobody_waits() {
        let (recorder, _log) = Recorder::new(10);
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
