//! Kinds without rules of their own.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Column, Rules};
use crate::table;

pub(super) struct Plain;

impl Rules for Plain {
    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn columns(&self) -> Vec<Column> {
        table::columns("Name, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![table::name(object), table::created(object, now)]
    }
}
