//! A full disk below the agent's state.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;

use agent::checkpoint::{self, Corrupt};
use engine::model::Timestamp;
use engine::node::Advisor;

#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("checkpoint.json");
    let wall = Timestamp::from_secs(1_800_000_000);
    let advisor = Advisor::new(Timestamp(0), wall);
    checkpoint::save(&path, &advisor.checkpoint(Timestamp(0))).unwrap();
    let last = fs::read(&path).unwrap();
    // Every write to this device finds the disk full.
    let unfinished = path.with_extension("unfinished");
    symlink("/dev/full", &unfinished).unwrap();
    let later = advisor.checkpoint(Timestamp::from_secs(60));
    let error = checkpoint::save(&path, &later).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(fs::read(&path).unwrap(), last);
    assert!(
        checkpoint::load(&path, Corrupt::SetAside)
            .unwrap()
            .is_some()
    );
    // Half a file is not left behind, and the next checkpoint is written.
    assert!(unfinished.symlink_metadata().is_err());
    checkpoint::save(&path, &later).unwrap();
    assert_ne!(fs::read(&path).unwrap(), last);
}
