//! Keeps the files of the broker from other users of the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Mode;

const OTHERS: u32 = 0o077;

/// Makes every new file and directory of this process accessible to its owner only.
pub(crate) fn restrict_new_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Returns a sentence if users other than the owner can read the file or the directory.
pub(crate) fn warning(what: &str, path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let is_open = mode & OTHERS != 0;
    is_open.then(|| {
        let path = path.display();
        format!(
            "{what} {path} is open to other users of this machine (mode {:03o}); run: chmod go= {path}",
            mode & 0o777
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_others_can_read_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        fs::write(&file, "secret").unwrap();
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(warning("the private key", &file), None);
        set(0o640);
        let text = warning("the private key", &file).unwrap();
        assert!(
            text.contains("key.pem") && text.contains("mode 640") && text.contains("chmod go="),
            "{text}"
        );
        assert_eq!(warning("the private key", &folder.path().join("missing")), None);
    }
}
