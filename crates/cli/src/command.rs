//! The commands that entities share: create, update, list, show and delete.
//!
//! An entity is the struct of the arguments that name it. Each trait below adds one command to it, and the struct of that command has the
//! connection, the output as text or JSON, and the report. Commands of a single entity are in its own module.

use anyhow::Result;
use peeklock::admin::Admin;
use serde::Serialize;

use crate::connect::Connect;
use crate::describe::Page;
use crate::table::Table;

/// An entity that commands name and report on.
pub(crate) trait Entity: clap::Args {
    /// The noun in reports, such as `queue`.
    const KIND: &'static str;

    fn name(&self) -> &str;
}

pub(crate) trait Creatable: Entity {
    type Settings: clap::Args;
    const CREATED: &'static str = "created";

    /// Creates the entity and returns its summary for the report.
    async fn create(&self, admin: &Admin, settings: Self::Settings) -> Result<String>;
}

pub(crate) trait Updatable: Entity {
    type Settings: clap::Args;

    /// Changes the settings that are given and returns the entity's summary for the report.
    async fn update(&self, admin: &Admin, settings: Self::Settings) -> Result<String>;
}

pub(crate) trait Deletable: Entity {
    const DELETED: &'static str = "deleted";

    /// Deletes the entity and returns its summary for the report.
    async fn delete(&self, admin: &Admin) -> Result<String>;
}

/// The arguments that select the items of a list.
pub(crate) trait Listable: clap::Args {
    type Item: Serialize;

    async fn items(&self, admin: &Admin) -> Result<Vec<Self::Item>>;
    fn table(items: &[Self::Item]) -> Table;
}

pub(crate) trait Showable: clap::Args {
    type Info: Serialize;

    async fn info(&self, admin: &Admin) -> Result<Self::Info>;

    /// Writes the page for a terminal. It may send further requests.
    async fn page(&self, admin: &Admin, info: &Self::Info, page: &mut Page<'_>) -> Result<()>;
}

// The structs have no doc comments, because `clap` would use them as the help of every entity.

#[derive(clap::Args)]
pub(crate) struct Create<E: Creatable> {
    #[command(flatten)]
    entity: E,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    settings: Box<E::Settings>,
}

impl<E: Creatable> Create<E> {
    pub(crate) async fn run(self) -> Result<()> {
        let summary = self.entity.create(&self.connect.admin().await?, *self.settings).await?;
        self.connect.report(E::CREATED, E::KIND, self.entity.name(), &summary)
    }
}

#[derive(clap::Args)]
pub(crate) struct Update<E: Updatable> {
    #[command(flatten)]
    entity: E,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    settings: Box<E::Settings>,
}

impl<E: Updatable> Update<E> {
    pub(crate) async fn run(self) -> Result<()> {
        let summary = self.entity.update(&self.connect.admin().await?, *self.settings).await?;
        self.connect.report("updated", E::KIND, self.entity.name(), &summary)
    }
}

#[derive(clap::Args)]
pub(crate) struct Delete<E: Deletable> {
    #[command(flatten)]
    entity: E,
    #[command(flatten)]
    connect: Connect,
}

impl<E: Deletable> Delete<E> {
    pub(crate) async fn run(self) -> Result<()> {
        let summary = self.entity.delete(&self.connect.admin().await?).await?;
        self.connect.report(E::DELETED, E::KIND, self.entity.name(), &summary)
    }
}

#[derive(clap::Args)]
pub(crate) struct List<L: Listable> {
    #[command(flatten)]
    scope: L,
    #[command(flatten)]
    connect: Connect,
}

impl<L: Listable> List<L> {
    pub(crate) async fn run(self) -> Result<()> {
        let items = self.scope.items(&self.connect.admin().await?).await?;
        self.connect.print(&items, |out| L::table(&items).write(out))
    }
}

#[derive(clap::Args)]
pub(crate) struct Show<S: Showable> {
    #[command(flatten)]
    entity: S,
    #[command(flatten)]
    connect: Connect,
}

impl<S: Showable> Show<S> {
    pub(crate) async fn run(self) -> Result<()> {
        let admin = self.connect.admin().await?;
        let info = self.entity.info(&admin).await?;
        let mut text = Vec::new();
        if !self.connect.json {
            self.entity.page(&admin, &info, &mut Page(&mut text)).await?;
        }
        self.connect.print(std::slice::from_ref(&info), |out| {
            *out = text;
            Ok(())
        })
    }
}
