//! Kinds without specific rules.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::kind::{Column, Rules};
use crate::kinds::printer;

pub(super) struct Plain;

impl Rules for Plain {
    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![printer::name(object), printer::created(object, now)]
    }
}
