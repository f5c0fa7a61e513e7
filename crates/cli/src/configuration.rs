//! The configuration of a broker from all sources: flags override the environment, which overrides files, which override defaults. Files
//! also declare entities.

mod file;
mod secret_file;
mod server;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use peeklock_server::{DEFAULT_NAMESPACE, Policy};
use peeklock_spec::NamespaceSpec;

use crate::options::{OptionValue, Options};
use crate::settings::DeclaredQueue;
use crate::text::KeySpec;
use file::File;

/// The file that is read if it exists and no file is named.
const USUAL_FILE: &str = "peeklock.toml";
/// The paths in the official emulators' images, read if there is no other file.
const EMULATOR_FILES: [&str; 2] =
    ["/ServiceBus_Emulator/ConfigFiles/Config.json", "/Eventhubs_Emulator/ConfigFiles/Config.json"];
/// The variable of the official emulators' images.
const EMULATOR_FILE_VARIABLE: &str = "CONFIG_PATH";
const EMULATOR_AMQP_PORT: &str = "EMULATOR_AMQP_PORT";
const EMULATOR_HTTP_PORT: &str = "EMULATOR_HTTP_PORT";

/// All arguments of `serve`.
#[derive(clap::Args, Clone)]
pub(crate) struct Told {
    /// Configuration: a peeklock.toml, or the Config.json of an official emulator; may be repeated [default: peeklock.toml if there is one]
    #[arg(long = "config", value_name = "FILE", env = "PEEKLOCK_CONFIG", value_delimiter = ';')]
    pub(crate) files: Vec<PathBuf>,
    /// A queue to create unless it exists: NAME, or with settings as `queue create` has them: NAME,sessions,lock-duration=30s; may be
    /// repeated, or separated by ';'
    #[arg(long = "queue", value_name = "QUEUE", env = "PEEKLOCK_QUEUES", value_delimiter = ';', value_parser = DeclaredQueue::parse)]
    queues: Vec<DeclaredQueue>,
    /// A key that clients may use, in place of the well-known one: NAME=SECRET or NAME=SECRET:Send,Listen; may be repeated, or
    /// separated by ';'
    #[arg(long = "key", value_name = "KEY", env = "PEEKLOCK_KEYS", hide_env_values = true, value_delimiter = ';', value_parser = KeySpec::parse)]
    keys: Vec<KeySpec>,
    /// A file with keys, one on each line in the form of --key, so that no secret is in the list of processes; may be repeated, or separated
    /// by ';'
    #[arg(long = "key-file", value_name = "FILE", env = "PEEKLOCK_KEYS_FILE", value_delimiter = ';')]
    key_files: Vec<PathBuf>,
    // This field is last, because arguments after it would have its last help heading.
    #[command(flatten)]
    options: Options,
}

impl Told {
    /// Returns the arguments of `serve` with these files, or with the default ones if there are none.
    pub(crate) fn of_files(files: Vec<PathBuf>) -> Self {
        Told {
            files,
            options: Options::default(),
            queues: Vec::new(),
            keys: Vec::new(),
            key_files: Vec::new(),
        }
    }
}

/// The whole, validated configuration.
pub(crate) struct Configuration {
    /// Every option that has a value in any source.
    pub(crate) options: Options,
    /// Keys of the default namespace, from the command line and from files.
    pub(crate) keys: Vec<Policy>,
    pub(crate) default: NamespaceSpec,
    /// The namespaces beside the default one.
    pub(crate) namespaces: Vec<(String, NamespaceSpec)>,
    pub(crate) files: Vec<PathBuf>,
    layers: Vec<Layer>,
}

/// One source of options. The first source with a value counts.
struct Layer {
    source: Source,
    entries: Vec<OptionValue>,
}

enum Source {
    /// Flags and Peeklock's own variables; the argument parser distinguishes them.
    CommandLine,
    Variable(&'static str),
    File(Box<File>),
    Default,
}

impl Configuration {
    pub(crate) fn load(told: Told) -> Result<Configuration> {
        let files =
            file_names(&told.files).iter().map(|path| File::read(path)).collect::<Result<Vec<_>>>()?;
        let mut options = told.options;
        let mut layers = vec![Layer { source: Source::CommandLine, entries: options.entries() }];
        for (variable, layer) in emulator_ports()? {
            options.over(&layer);
            layers.push(Layer { source: Source::Variable(variable), entries: layer.entries() });
        }
        let mut spaces = Spaces::default();
        // The later of two files takes precedence.
        for mut file in files.into_iter().rev() {
            options.over(&file.options);
            spaces.add(&mut file)?;
            layers.push(Layer { entries: file.options.entries(), source: Source::File(Box::new(file)) });
        }
        let defaults = Options::defaults();
        options.over(&defaults);
        layers.push(Layer { source: Source::Default, entries: defaults.entries() });
        spaces.add_queues(told.queues)?;
        spaces.check()?;
        let mut specs = told.keys;
        for path in &told.key_files {
            specs.extend(secret_file::keys(path)?);
        }
        let mut keys: Vec<Policy> = specs.into_iter().map(KeySpec::into_policy).collect();
        keys.extend(policies(&spaces.default)?);
        let files = spaces.files;
        let configuration =
            Configuration { options, keys, default: spaces.default, namespaces: spaces.named, files, layers };
        configuration.check_pairs()?;
        Ok(configuration)
    }

    /// Checks options that are only valid together.
    fn check_pairs(&self) -> Result<()> {
        let Options { tls_cert, tls_key, jwt, storage, .. } = &self.options;
        if storage.key.is_some() && storage.key_file.is_some() {
            bail!("the key of the storage account is given twice; give storage-key or storage-key-file");
        }
        if tls_cert.is_some() != tls_key.is_some() {
            bail!(
                "a certificate and its private key go together; give both tls-cert and tls-key, or neither"
            );
        }
        let jwt_parts = [jwt.keys.is_some(), jwt.issuer.is_some(), jwt.audience.is_some()];
        if jwt_parts.contains(&true) && jwt_parts.contains(&false) {
            bail!("bearer tokens need all three of jwt-keys, jwt-issuer and jwt-audience; give all, or none");
        }
        Ok(())
    }

    /// Returns whether no source sets an option.
    pub(crate) fn is_default(&self, flag: &str) -> bool {
        let at = self.options.entries().iter().position(|entry| entry.flag == flag);
        let layer = at.and_then(|at| self.layers.iter().find(|layer| layer.says(at)));
        layer.is_none_or(|layer| matches!(layer.source, Source::Default))
    }

    /// Returns each option with its value and its source.
    pub(crate) fn origins(&self, matches: &ArgMatches) -> Vec<(String, Option<String>, String)> {
        let options = self.options.entries();
        let origin = |(at, option): (usize, OptionValue)| {
            let layer = self.layers.iter().find(|layer| layer.says(at));
            let origin =
                layer.map_or_else(|| "not set".to_owned(), |layer| layer.source.tell(&option, matches));
            (option.key, option.value, origin)
        };
        options.into_iter().enumerate().map(origin).collect()
    }
}

impl Layer {
    fn says(&self, at: usize) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.value.is_some())
    }
}

impl Source {
    fn tell(&self, option: &OptionValue, matches: &ArgMatches) -> String {
        match self {
            Source::CommandLine if matches.value_source(option.flag) == Some(ValueSource::EnvVariable) => {
                option.env.to_owned()
            }
            Source::CommandLine => format!("--{}", option.flag),
            Source::Variable(name) => (*name).to_owned(),
            Source::File(file) => file.place(&option.key),
            Source::Default => "default".to_owned(),
        }
    }
}

/// Returns the named files, else the file of the emulators' variable, else the default file, else those of the emulators' images.
fn file_names(named: &[PathBuf]) -> Vec<PathBuf> {
    if !named.is_empty() {
        return named.to_vec();
    }
    if let Some(path) = env::var_os(EMULATOR_FILE_VARIABLE).filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    if Path::new(USUAL_FILE).exists() {
        return vec![USUAL_FILE.into()];
    }
    EMULATOR_FILES.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// Returns the ports from the emulators' variables.
fn emulator_ports() -> Result<Vec<(&'static str, Options)>> {
    let mut layers = Vec::new();
    for variable in [EMULATOR_AMQP_PORT, EMULATOR_HTTP_PORT] {
        let Some(text) = env::var_os(variable).filter(|text| !text.is_empty()) else { continue };
        let text = text.to_string_lossy();
        let listen = Some(text.parse().with_context(|| format!("{variable} is '{text}'"))?);
        let layer = match variable {
            EMULATOR_AMQP_PORT => Options { listen, ..Options::default() },
            _ => Options { http: listen, ..Options::default() },
        };
        layers.push((variable, layer));
    }
    Ok(layers)
}

pub(crate) fn policies(space: &NamespaceSpec) -> Result<Vec<Policy>> {
    space.keys.0.iter().map(|(name, spec)| Ok(spec.declared(name)?)).collect()
}

/// The namespaces of all files together.
#[derive(Default)]
struct Spaces {
    default: NamespaceSpec,
    named: Vec<(String, NamespaceSpec)>,
    files: Vec<PathBuf>,
}

impl Spaces {
    fn add(&mut self, file: &mut File) -> Result<()> {
        self.files.insert(0, file.path.clone());
        let told = |what: &str| format!("{what}, and again in {}; keep one", file.path.display());
        if let Some(twice) = join(&mut self.default, std::mem::take(&mut file.default)) {
            bail!(told(&twice));
        }
        for (name, space) in std::mem::take(&mut file.namespaces) {
            if self.named.iter().any(|(known, _)| *known == name) {
                bail!(told(&format!("the namespace '{name}' is declared")));
            }
            self.named.push((name, space));
        }
        Ok(())
    }

    fn add_queues(&mut self, queues: Vec<DeclaredQueue>) -> Result<()> {
        let given = NamespaceSpec {
            queues: peeklock_spec::Named(queues.into_iter().map(|queue| (queue.name, queue.spec)).collect()),
            ..NamespaceSpec::default()
        };
        match join(&mut self.default, given) {
            Some(twice) => bail!("{twice}, and again by --queue; keep one"),
            None => Ok(()),
        }
    }

    /// Checks constraints between files and between namespaces.
    fn check(&self) -> Result<()> {
        if let Err(misfit) = self.default.check() {
            bail!("{}: {}", misfit.path.join("."), misfit.message);
        }
        if self.named.iter().any(|(name, _)| name == DEFAULT_NAMESPACE) {
            bail!(
                "the namespace '{DEFAULT_NAMESPACE}' is what stands outside of all others; write it there, or give it another name"
            );
        }
        let default = std::iter::once((DEFAULT_NAMESPACE, &self.default));
        let named = self.named.iter().map(|(name, space)| (name.as_str(), space));
        let mut hosts: Vec<(String, &str)> = Vec::new();
        for (name, space) in default.chain(named) {
            for host in &space.hosts {
                let host = host.to_ascii_lowercase();
                if let Some((_, other)) = hosts.iter().find(|(known, _)| *known == host) {
                    bail!(
                        "the host '{host}' is given to the namespaces '{other}' and '{name}'; a host belongs to one"
                    );
                }
                hosts.push((host, name));
            }
        }
        Ok(())
    }
}

/// Adds the entities of another file. Returns an entity that both declare.
fn join(into: &mut NamespaceSpec, from: NamespaceSpec) -> Option<String> {
    let NamespaceSpec { hosts, tier, keys, queues, topics, groups, hubs } = from;
    into.hosts.extend(hosts);
    into.tier = into.tier.or(tier);
    add(&mut into.keys.0, keys.0, |name| format!("the key '{name}' is declared"))
        .or_else(|| add(&mut into.queues.0, queues.0, |name| format!("the queue '{name}' is declared")))
        .or_else(|| add(&mut into.topics.0, topics.0, |name| format!("the topic '{name}' is declared")))
        .or_else(|| add(&mut into.groups.0, groups.0, |name| format!("the group '{name}' is declared")))
        .or_else(|| add(&mut into.hubs.0, hubs.0, |name| format!("the hub '{name}' is declared")))
}

fn add<K: PartialEq, T>(
    into: &mut Vec<(K, T)>,
    from: Vec<(K, T)>,
    tell: impl Fn(&K) -> String,
) -> Option<String> {
    let twice = from.iter().find(|(name, _)| into.iter().any(|(known, _)| known == name));
    let told = twice.map(|(name, _)| tell(name));
    into.extend(from);
    told
}
