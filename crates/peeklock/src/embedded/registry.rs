//! The directories that brokers of this process have open, so that all handles of a directory share one broker.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::shared::{Place, Settings, Shared};
use crate::error::{Error, Kind};

/// The directories by their canonical paths.
static DIRECTORIES: LazyLock<Mutex<HashMap<PathBuf, Arc<Directory>>>> = LazyLock::new(Mutex::default);

/// A directory that was opened at least once.
#[derive(Default)]
struct Directory {
    /// Locked while the directory is opened, so that it is opened once. The broker ends with its last handle, not with this one.
    broker: tokio::sync::Mutex<Weak<Shared>>,
    is_claimed: Mutex<bool>,
    released: Condvar,
}

/// Marks a directory as open. A broker that is dropped closes its directory first and then releases the claim.
pub(super) struct Claim(Arc<Directory>);

/// Returns the broker of a directory. Opens it if this process does not have it open.
pub(super) async fn open(path: PathBuf, settings: Settings) -> Result<Arc<Shared>, Error> {
    let path = canonical(&path)?;
    let directory = Arc::clone(locked(&DIRECTORIES).entry(path.clone()).or_default());
    let mut broker = directory.broker.lock().await;
    if let Some(shared) = broker.upgrade() {
        if shared.is_running().await {
            return Ok(shared);
        }
        // The broker was stopped, or it has failed and still has its directory open.
        let _ = shared.stop().await;
    }
    let claim = Claim::of(&directory);
    let shared = Arc::new(Shared::open(Place::Directory(path), settings, Some(claim)).await?);
    *broker = Arc::downgrade(&shared);
    Ok(shared)
}

impl Claim {
    /// Waits until a broker that is being dropped on another thread has closed the directory. This takes as long as one write.
    fn of(directory: &Arc<Directory>) -> Self {
        let mut is_claimed = locked(&directory.is_claimed);
        while *is_claimed {
            is_claimed = directory.released.wait(is_claimed).unwrap_or_else(PoisonError::into_inner);
        }
        *is_claimed = true;
        Claim(Arc::clone(directory))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *locked(&self.0.is_claimed) = false;
        self.0.released.notify_all();
    }
}

/// Creates the directory and returns its path without links, so that two names of a directory are the same.
fn canonical(path: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(path).and_then(|()| path.canonicalize()).map_err(|error| {
        let text = format!(
            "Cannot create the directory {} for the embedded broker: {error}. Choose another directory.",
            path.display()
        );
        Error::new(Kind::Embedded, "E-EMB-02", text)
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
