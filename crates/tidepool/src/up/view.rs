//! Shows the cluster while it is up: as a page on a terminal, as lines elsewhere.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::MissedTickBehavior,
};

use super::{
    board::{Board, Node, NodeReport, Pod},
    keys::{Key, Keys},
    screen::{self, Frame},
    scroll::Scroll,
    terminal::Terminal,
};
use crate::{logs, output::count, say};

/// A reader does not need it faster.
const REDRAW: Duration = Duration::from_millis(200);
/// Watch events that are applied at once.
const MAX_EVENTS: usize = 1_000;

pub(super) struct View {
    pods: Api<Pod>,
    nodes: Api<Node>,
    reports: Api<NodeReport>,
    board: Board,
    frame: Frame,
    begun: Instant,
    /// The use of services follows the tide of the demo: the time from one low tide to the next.
    tide: Option<Duration>,
}

impl View {
    pub(super) fn new(client: Client, frame: Frame, tide: Option<Duration>) -> Self {
        let pods = ApiResource::erase::<core::Pod>(&());
        let nodes = ApiResource::erase::<core::Node>(&());
        let report = GroupVersionKind::gvk(
            "node.katalyst.kubewharf.io",
            "v1alpha1",
            "CustomNodeResource",
        );
        let reports = ApiResource::from_gvk_with_plural(&report, "customnoderesources");
        Self {
            pods: Api::all_with(client.clone(), &pods),
            nodes: Api::all_with(client.clone(), &nodes),
            reports: Api::all_with(client, &reports),
            board: Board::new(frame.schedulers.clone()),
            frame,
            begun: Instant::now(),
            tide,
        }
    }

    /// Prints one line per change, until the watch or the reader ends.
    pub(super) async fn lines(&mut self) -> anyhow::Result<()> {
        let mut pods = std::pin::pin!(follow(self.pods.clone()));
        while let Some(events) = pods.next().await {
            let time = time();
            let changes = events
                .into_iter()
                .flat_map(|event| self.board.pod_event(event, &time));
            let lines: String = changes.map(|change| format!("{change}\n")).collect();
            say(&lines)?;
        }
        Ok(())
    }

    /// Redraws a page on the terminal, until the user quits.
    pub(super) async fn page(&mut self, terminal: &Terminal) -> anyhow::Result<()> {
        let mut pods = std::pin::pin!(follow(self.pods.clone()));
        let mut nodes = std::pin::pin!(follow(self.nodes.clone()));
        let mut reports = std::pin::pin!(follow(self.reports.clone()));
        let mut resized =
            signal(SignalKind::window_change()).context("cannot watch the window size")?;
        let mut ticks = tokio::time::interval(REDRAW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut keys, mut scroll) = (Keys::open(), Scroll::default());
        let mut drawn: Option<Duration> = None;
        let mut changed = true;
        loop {
            tokio::select! {
                Some(events) = pods.next() => {
                    changed = true;
                    for event in events {
                        self.board.pod_event(event, &time());
                    }
                }
                Some(events) = nodes.next() => {
                    changed = true;
                    events.into_iter().for_each(|event| self.board.node_event(event));
                }
                Some(events) = reports.next() => {
                    changed = true;
                    events.into_iter().for_each(|event| self.board.report_event(event));
                }
                _ = resized.recv() => drawn = None,
                typed = keys.next() => {
                    for key in typed {
                        if key == Key::Quit {
                            return Ok(());
                        }
                        scroll.press(key);
                    }
                    drawn = None;
                }
                _ = ticks.tick() => {}
            }
            let since = self.begun.elapsed();
            // A changed window is redrawn at once, a changed board at most every `REDRAW`.
            let due = match drawn {
                None => true,
                Some(last) => {
                    changed && since - last >= REDRAW || since.as_secs() != last.as_secs()
                }
            };
            if due {
                if let Some(tide) = self.tide {
                    self.board.set_tide(local::tide::level(since, tide));
                }
                let size = terminal.size().context("the terminal is gone")?;
                let (board, frame) = (&self.board, &self.frame);
                let page = match scroll.draw(board, frame, since, size) {
                    Some(page) => page,
                    None => screen::draw(board, frame, &logs::held(), since, size),
                };
                terminal
                    .draw(&page, size)
                    .context("cannot draw on the terminal")?;
                (drawn, changed) = (Some(since), false);
            }
        }
    }

    /// The last lines. The page with the kubeconfig is gone by then.
    pub(super) fn summary(&self) -> String {
        let time = Duration::from_secs(self.begun.elapsed().as_secs());
        let time = humantime::format_duration(time);
        format!(
            "stopped after {time}: {} placed\n{}\n",
            count(self.board.placed(), "pod"),
            self.frame.export
        )
    }
}

/// The events of a watch, several at once where they come fast. It continues after failures.
fn follow<K>(api: Api<K>) -> impl Stream<Item = Vec<Event<K>>>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(|event| async { event.ok() })
        .ready_chunks(MAX_EVENTS)
}

fn time() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}
