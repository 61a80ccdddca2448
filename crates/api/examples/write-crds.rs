//! Writes the definitions of custom kinds to the folder that is its argument: `cargo xtask gen` runs it for `deploy/crds`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1);
    let folder = PathBuf::from(folder.ok_or("the folder to write to is missing")?);
    fs::create_dir_all(&folder)?;
    for (name, definition) in api::crds::all() {
        fs::write(folder.join(name), api::crds::yaml(&definition)?)?;
    }
    Ok(())
}
