//! `peeklock init`: a small project that uses the Rust SDK.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Write a small Rust project that sends messages and works on them; it runs without a server.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The project, and its folder
    #[arg(value_parser = parse_name)]
    name: String,
    /// The folder of the crate `peeklock`, in place of the one in the registry
    #[arg(long, value_name = "FOLDER", hide = true)]
    path: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  peeklock init shop
  cd shop && cargo run";

/// The files of a project, with their names in it.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    (".gitignore", include_str!("template/gitignore.in")),
    ("README.md", include_str!("template/README.md.in")),
    ("src/lib.rs", include_str!("template/src/lib.rs.in")),
    ("src/main.rs", include_str!("template/src/main.rs.in")),
    ("tests/orders.rs", include_str!("template/tests/orders.rs.in")),
];

/// The version of the SDK that a project asks for.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Words that cannot be the name of a crate, or that hide another crate.
const TAKEN: [&str; 8] = ["peeklock", "serde", "tokio", "test", "core", "std", "alloc", "proc_macro"];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = Path::new(&arguments.name);
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("'{}' is there already; choose another name, or remove it", arguments.name)
        }
        created => created.with_context(|| format!("cannot create the folder '{}'", arguments.name))?,
    }
    let source = source(arguments.path.as_deref())?;
    for (file, template) in FILES {
        let text = template
            .replace("{name}", &arguments.name)
            .replace("{crate}", &arguments.name.replace('-', "_"))
            .replace("{source}", &source);
        write(&folder.join(file), &text)?;
    }
    let name = &arguments.name;
    writeln!(
        std::io::stdout().lock(),
        "Created '{name}'\n\n  cd {name}\n  cargo run     sends five orders and works on them, without a server\n  cargo test    tests the handler on virtual time"
    )?;
    Ok(())
}

fn parse_name(text: &str) -> Result<String> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) || !text.chars().all(is_inner) {
        bail!("'{text}' is no name of a crate; write letters, digits, '-' and '_', with a letter first");
    }
    if TAKEN.contains(&text.replace('-', "_").as_str()) {
        bail!("'{text}' is the name of another crate; choose another name");
    }
    Ok(text.to_owned())
}

/// Returns where the project gets the SDK from.
fn source(path: Option<&Path>) -> Result<String> {
    let Some(path) = path else { return Ok(format!("version = \"{VERSION}\"")) };
    let path = path.canonicalize().with_context(|| format!("cannot find '{}'", path.display()))?;
    let path = path.to_str().with_context(|| format!("'{}' is no Unicode text", path.display()))?;
    // Debug writes the same escapes as TOML for the characters of a path.
    Ok(format!("path = {path:?}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("cannot write '{}'", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_the_name_of_a_crate() {
        for good in ["shop", "my-shop", "shop_2"] {
            assert_eq!(parse_name(good).unwrap(), good);
        }
        for bad in ["", "2shop", "my shop", "shop/x", "../shop", "tokio", "proc-macro"] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_project_uses_the_published_crate() {
        assert_eq!(source(None).unwrap(), format!("version = \"{VERSION}\""));
    }
}
