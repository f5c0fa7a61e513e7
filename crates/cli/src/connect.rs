//! What every command that talks to a broker has in common.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use peeklock_client::{Admin, Client, Options, Target};

/// A broker that has not confirmed by then is given up.
pub(crate) const CONFIRM_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Connect {
    /// A connection string, or amqp://NAME:SECRET@HOST:PORT (amqps:// for TLS)
    #[arg(
        long,
        value_name = "STRING",
        env = "PEEKLOCK_CONNECT",
        hide_env_values = true,
        default_value = "amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672"
    )]
    connect: String,
    /// Certificates to trust beside those the machine trusts, in PEM form
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_CA")]
    ca: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Connect {
    /// Connects, to send and receive.
    pub(crate) async fn open(&self) -> Result<Client> {
        Ok(Client::connect_with(&self.target()?, &self.options()).await?)
    }

    /// Prepares for management.
    pub(crate) fn admin(&self) -> Result<Admin> {
        Ok(Admin::new(&self.target()?, &self.options()))
    }

    pub(crate) fn target(&self) -> Result<Target> {
        Ok(Target::parse(&self.connect)?)
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        options.certificates.clone_from(&self.ca);
        options
    }
}
