//! Measures the share of the broker in the CPU time of stock SDKs that send, receive and complete.
//!
//! The SDKs are those of the interop tests, with the same pinned versions: Python in an environment of its own below the target folder,
//! JavaScript in `interop/js/node_modules`. Both are installed if they are missing. The programs in `bench/sdks` print when a phase
//! starts and ends, and the CPU time that they used; the CPU time of the broker is read at the same moments.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::report::{Row, Target};

const BODY_BYTES: usize = 256;
const PYTHON_REQUIREMENTS: &str = "interop/python/requirements.txt";
const PYTHON_PROGRAM: &str = "bench/sdks/load.py";
const JS_FOLDER: &str = "interop/js";
const JS_PROGRAM: &str = "bench/sdks/load.mjs";
/// The phases of both programs with the number of messages of a whole run. The last one receives what the others have sent.
const PHASES: [(&str, usize); 3] = [
    ("send one at a time", 2_000),
    ("send batches of 100", 20_000),
    ("receive 100 at a time and complete each", 22_000),
];

/// The result of one phase.
struct Phase {
    rate: f64,
    broker_share: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let sdks = [("azure-servicebus (Python)", python()?), ("@azure/service-bus (JavaScript)", javascript()?)];
    let mut rows = Vec::new();
    for (name, program) in sdks {
        let (mut rates, mut shares): ([Vec<f64>; 3], [Vec<f64>; 3]) = Default::default();
        for _ in 0..arguments.repetitions {
            let phases = program.measure(arguments).with_context(|| name.to_owned())?;
            for (index, phase) in phases.into_iter().enumerate() {
                rates[index].push(phase.rate);
                shares[index].push(phase.broker_share * 100.0);
            }
        }
        for ((what, _), (rates, shares)) in PHASES.into_iter().zip(rates.into_iter().zip(shares)) {
            rows.push(Row::new(format!("{name}, 256 B, {what}"), "messages/s", rates));
            let row = Row::new("… broker's share of the CPU time of broker and client", "%", shares);
            rows.push(row.target(Target::AtMost(10.0)));
        }
    }
    Ok(rows)
}

/// A program with the packages that it needs.
struct Program {
    executable: PathBuf,
    script: PathBuf,
    folder: PathBuf,
}

impl Program {
    fn measure(&self, arguments: &Arguments) -> Result<Vec<Phase>> {
        let broker = Broker::start(&arguments.data)?;
        let mut command = Command::new(&self.executable);
        command.arg(&self.script).current_dir(&self.folder).stdout(Stdio::piped());
        command.args([broker.connection_string()?.as_str(), QUEUE, &BODY_BYTES.to_string()]);
        let counts = PHASES.map(|(_, count)| if arguments.quick { count / 10 } else { count });
        command.args(counts.map(|count| count.to_string()));
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.script.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("the program has no stdout")?);
        let phases: Result<Vec<Phase>> = PHASES.iter().map(|_| phase(&broker, &mut lines)).collect();
        // The program also ends if a phase has failed: its output is closed.
        drop(lines);
        let status = child.wait()?;
        let phases = phases?;
        ensure!(status.success(), "{} failed: {status}", self.script.display());
        Ok(phases)
    }
}

/// Reads the two lines of one phase and the CPU time of the broker between them.
fn phase(broker: &Broker, lines: &mut BufReader<ChildStdout>) -> Result<Phase> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    ensure!(line.trim() == "start", "the program printed '{}' instead of a start", line.trim());
    let before = broker.cpu_time()?;
    line.clear();
    lines.read_line(&mut line)?;
    let broker_cpu = broker.cpu_time()?.saturating_sub(before).as_secs_f64();
    let mut numbers = line.split_whitespace().skip(1).map(str::parse::<f64>);
    let (Some(Ok(count)), Some(Ok(seconds)), Some(Ok(cpu))) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        anyhow::bail!("the program printed '{}' instead of a result", line.trim())
    };
    Ok(Phase { rate: count / seconds, broker_share: broker_cpu / (broker_cpu + cpu) })
}

/// Returns the Python program, after the environment was created.
fn python() -> Result<Program> {
    let root = std::env::current_dir()?;
    // This program is in a folder such as `target/release`.
    let target = std::env::current_exe()?.ancestors().nth(2).context("no target folder")?.to_owned();
    let environment = target.join("bench-venv");
    let executable = environment.join("bin/python");
    let has_sdk = |executable: &Path| {
        let mut check = Command::new(executable);
        check.args(["-c", "import azure.servicebus"]).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    if !has_sdk(&executable) {
        succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut install = Command::new(&executable);
        install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--requirement", PYTHON_REQUIREMENTS]);
        succeeds(&mut install)?;
    }
    Ok(Program { executable, script: root.join(PYTHON_PROGRAM), folder: root })
}

/// Returns the JavaScript program, after the packages were installed.
fn javascript() -> Result<Program> {
    let root = std::env::current_dir()?;
    let folder = root.join(JS_FOLDER);
    if !folder.join("node_modules/@azure/service-bus").exists() {
        succeeds(Command::new("npm").current_dir(&folder).args(["ci", "--loglevel=error"]))?;
    }
    Ok(Program { executable: "node".into(), script: root.join(JS_PROGRAM), folder })
}

fn succeeds(command: &mut Command) -> Result<()> {
    // The output of the tool is not part of the results.
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(())
}
