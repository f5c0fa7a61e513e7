//! `peeklock init` writes a project that builds, runs and passes its own tests without a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::broker::{failure_of, peeklock, text_of};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder for what cargo builds in a project. It outlives the test, so that the next run builds little.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("init")
}

/// Runs cargo in a project.
fn cargo(project: &Path, arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(project).args(arguments).args(["--offline", "--quiet"]);
    command.env("CARGO_TARGET_DIR", target()).env("CARGO_PROFILE_DEV_DEBUG", "false");
    text_of(&command.output().unwrap())
}

mod slow {
    use super::*;

    #[test]
    fn a_new_project_builds_runs_and_passes_its_tests() {
        let folder = TempDir::new().unwrap();
        let sdk = workspace().join("crates/peeklock");
        let mut init = peeklock();
        init.current_dir(folder.path()).args(["init", "demo-shop", "--path"]).arg(sdk);
        let told = text_of(&init.output().unwrap());
        assert!(told.contains("cd demo-shop") && told.contains("cargo run"), "{told}");

        let project = folder.path().join("demo-shop");
        // The versions of the workspace are there already, so nothing is downloaded.
        fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
        let tests = cargo(&project, &["test"]);
        assert!(tests.contains("2 passed"), "{tests}");
        // The tests have built the program as well. `cargo run` would build the SDK again, without the test kit.
        let run = text_of(&Command::new(target().join("debug/demo-shop")).output().unwrap());
        assert!(run.contains("order 5: soup") && run.contains("stopped: 5 completed, 0 failed"), "{run}");
    }
}

#[test]
fn an_existing_folder_is_left_alone() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("shop")).unwrap();
    let output = peeklock().current_dir(folder.path()).args(["init", "shop"]).output().unwrap();
    assert!(failure_of(&output).contains("'shop'"));
    assert_eq!(fs::read_dir(folder.path().join("shop")).unwrap().count(), 0);
    let output = peeklock().current_dir(folder.path()).args(["init", "../shop"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_new_project_depends_on_the_published_crate() {
    let folder = TempDir::new().unwrap();
    text_of(&peeklock().current_dir(folder.path()).args(["init", "shop"]).output().unwrap());
    let manifest = fs::read_to_string(folder.path().join("shop/Cargo.toml")).unwrap();
    assert!(manifest.contains("peeklock = { version = \"0.1\""), "{manifest}");
}
