//! Takes in reviews within a bound on memory. Small reviews have a part of their own, so that they do not wait for large ones.
//!
//! A client can make the API server send 18 MiB for a pod of 3 MiB, because JSON escapes some characters with six bytes. A parsed
//! review takes more memory than its text: up to a hundred times as much for a text of short values. The bounds add up to 256 MiB:
//!
//! | part | MiB |
//! |---|---|
//! | texts of small reviews | 16 |
//! | texts of large reviews, which are answered one after the other | 72 |
//! | parsed small reviews, and copies of those that are being judged | 48 |
//! | one parsed large review, and its copies | 120 |

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::unanswered::Unanswered;

/// An update has the object twice: 18 MiB as a client can write it, and 9 MiB as it can be stored.
pub(super) const LARGEST_BODY: usize = 32 << 20;
/// Of a text that is parsed without a look at its values.
pub(super) const SMALL_BODY: usize = 32 << 10;
/// JSON values of one object: each container has about thirty with the defaults of the API server.
pub(super) const MOST_VALUES: usize = 200_000;
/// Bytes that a parsed review takes at most per byte of its text.
const PARSED_FACTOR: usize = 128;

const MIB: usize = 1 << 20;
const SMALL_TEXTS: usize = 16 * MIB;
const LARGE_TEXTS: usize = 72 * MIB;
const SMALL_PARSED: usize = 32 * MIB;
const LARGE_PARSED: usize = 120 * MIB;
/// Reviews that wait for a part.
const MOST_WAITING: usize = 1_024;
/// From the head of a review to its last byte: a slow client must not keep its part for long.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// The memory of reviews.
pub(super) struct Intake {
    small_texts: Arc<Semaphore>,
    large_texts: Arc<Semaphore>,
    small_parsed: Arc<Semaphore>,
    large_parsed: Arc<Semaphore>,
    waiting: AtomicUsize,
    held: Arc<HeldBytes>,
    pub(super) arrives_within: Duration,
}

/// Bytes that reviews take now, and the most that they took.
#[derive(Debug, Default)]
struct HeldBytes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A part of the memory, free again when it is dropped.
pub(super) struct Share {
    _permit: OwnedSemaphorePermit,
    held: Arc<HeldBytes>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The text of a review.
pub(super) struct ReviewText {
    pub(super) bytes: Vec<u8>,
    _share: Share,
}

impl ReviewText {
    /// It is parsed on a thread of its own, and its values are counted before.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > SMALL_BODY
    }
}

impl Default for Intake {
    fn default() -> Self {
        let share = |bytes| Arc::new(Semaphore::new(bytes));
        Self {
            small_texts: share(SMALL_TEXTS),
            large_texts: share(LARGE_TEXTS),
            small_parsed: share(SMALL_PARSED),
            large_parsed: share(LARGE_PARSED),
            waiting: AtomicUsize::new(0),
            held: Arc::default(),
            arrives_within: ARRIVES_WITHIN,
        }
    }
}

impl Intake {
    /// Reads a body of this length; none if the client did not say it.
    pub(super) async fn read(
        &self,
        body: Body,
        length: Option<usize>,
    ) -> Result<ReviewText, Unanswered> {
        let most = length.unwrap_or(LARGEST_BODY);
        if most > LARGEST_BODY {
            return Err(Unanswered::TooLarge {
                found: most.to_string(),
                most: LARGEST_BODY,
            });
        }
        let of = match most <= SMALL_BODY {
            true => &self.small_texts,
            false => &self.large_texts,
        };
        let share = self.take(of, most).await?;
        let limit = self.arrives_within;
        let read = tokio::time::timeout(limit, collect(body, length, most));
        let bytes = read.await.map_err(|_| Unanswered::Slow(limit))??;
        Ok(ReviewText {
            bytes,
            _share: share,
        })
    }

    /// The memory to parse and judge a review.
    pub(super) async fn take_parsed(&self, text: &ReviewText) -> Result<Share, Unanswered> {
        match text.is_large() {
            true => self.take(&self.large_parsed, LARGE_PARSED).await,
            false => {
                let bytes = PARSED_FACTOR * text.bytes.len();
                self.take(&self.small_parsed, bytes).await
            }
        }
    }

    async fn take(&self, of: &Arc<Semaphore>, bytes: usize) -> Result<Share, Unanswered> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = match of.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => {
                let _waits = Waiting::begin(&self.waiting)?;
                let permit = of.clone().acquire_many_owned(permits).await;
                permit.map_err(|error| Unanswered::Unable(error.to_string()))?
            }
        };
        let now = self.held.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.held.most.fetch_max(now, Ordering::Relaxed);
        Ok(Share {
            _permit: permit,
            held: self.held.clone(),
            bytes,
        })
    }

    /// Bytes that reviews take now, and the most so far.
    pub(super) fn held(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.held.now), of(&self.held.most))
    }
}

/// A review that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Result<Self, Unanswered> {
        let waiting = Self(count);
        match count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
            true => Ok(waiting),
            false => Err(Unanswered::Overload { most: MOST_WAITING }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn collect(body: Body, length: Option<usize>, most: usize) -> Result<Vec<u8>, Unanswered> {
    let mut bytes = Vec::with_capacity(length.unwrap_or(0));
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Unanswered::Closed)?;
        if bytes.len() + piece.len() > most {
            return Err(Unanswered::TooLarge {
                found: format!("more than {most}"),
                most,
            });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
