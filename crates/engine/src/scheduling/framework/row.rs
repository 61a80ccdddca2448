//! Row checks: they read the numbers of a node's own accounts, sixty-four nodes at a time.

use super::verdict::{Reason, Verdict};
use crate::model::Resource;

/// Nodes per block.
pub const BLOCK: usize = 64;

/// A declared column of the rows, from [`super::Plan::column`]; the only way to read one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnId(pub(super) usize);

/// The declared columns of up to [`BLOCK`] nodes.
#[derive(Debug, Clone, Default)]
pub struct Block {
    pub(crate) columns: Vec<[i64; BLOCK]>,
}

impl Block {
    #[inline]
    pub fn column(&self, column: ColumnId) -> &[i64; BLOCK] {
        &self.columns[column.0]
    }

    #[inline]
    pub fn row(&self, lane: usize) -> Row<'_> {
        Row { block: self, lane }
    }
}

#[cfg(test)]
impl Block {
    /// With these columns, and how to read each.
    pub(crate) fn of(columns: Vec<[i64; BLOCK]>) -> (Self, Vec<ColumnId>) {
        let ids = (0..columns.len()).map(ColumnId).collect();
        (Self { columns }, ids)
    }
}

/// One node's numbers.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(crate) block: &'a Block,
    pub(crate) lane: usize,
}

impl Row<'_> {
    #[inline]
    pub fn get(self, column: ColumnId) -> i64 {
        self.block.columns[column.0][self.lane]
    }
}

/// What a pod requests of a resource, and what a node has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedAmount {
    pub resource: Resource,
    pub requested: i64,
    pub allocatable: i64,
    /// Below zero if the node is overcommitted.
    pub free: i64,
}

/// Filters by the node's own numbers. Equal checks give equal results for equal rows.
pub trait RowFilter: PartialEq + Send + 'static {
    fn filter(&self, row: Row) -> Verdict;
    /// The codes of all reasons why `filter` rejected a row, in the order of their messages.
    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32));
    /// The message for a code.
    fn reason(&self, code: u32) -> Reason;

    /// For explanations: the amounts that `filter` compares.
    fn amounts(&self, _row: Row) -> Vec<RequestedAmount> {
        Vec::new()
    }
}

/// Scores by the node's own numbers, 0..=100, final: nothing is normalised. Equal checks give equal scores.
pub trait RowScore: PartialEq + Send + 'static {
    fn score(&self, row: Row) -> i64;

    /// Scores all rows of a block. A check that nearly every pod uses may override it with a faster loop.
    fn score_block(&self, block: &Block, out: &mut [i64; BLOCK]) {
        for (lane, score) in out.iter_mut().enumerate() {
            *score = self.score(block.row(lane));
        }
    }
}

/// One virtual call per block: the loop is where the compiler can inline the check.
pub(crate) trait ErasedRowFilter: Send {
    fn filter_block(&self, block: &Block, out: &mut [Verdict; BLOCK]);
    fn filter_row(&self, row: Row) -> Verdict;
    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32));
    fn reason(&self, code: u32) -> Reason;
    fn amounts(&self, row: Row) -> Vec<RequestedAmount>;
}

impl<C: RowFilter> ErasedRowFilter for C {
    fn filter_block(&self, block: &Block, out: &mut [Verdict; BLOCK]) {
        for (lane, verdict) in out.iter_mut().enumerate() {
            *verdict = self.filter(block.row(lane));
        }
    }
    fn filter_row(&self, row: Row) -> Verdict {
        self.filter(row)
    }
    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32)) {
        RowFilter::reasons(self, row, each);
    }
    fn reason(&self, code: u32) -> Reason {
        RowFilter::reason(self, code)
    }
    fn amounts(&self, row: Row) -> Vec<RequestedAmount> {
        RowFilter::amounts(self, row)
    }
}

pub(crate) trait ErasedRowScore: Send {
    fn score_block(&self, block: &Block, out: &mut [i64; BLOCK]);
}

impl<C: RowScore> ErasedRowScore for C {
    fn score_block(&self, block: &Block, out: &mut [i64; BLOCK]) {
        RowScore::score_block(self, block, out);
    }
}
