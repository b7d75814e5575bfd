//! What the process does that has one task run on the cluster: it begins the task's job, or finds it as an earlier errand has left
//! it, and waits for its end. However it ends itself, the job runs on, and another errand finds it by its name.

use super::came::Came;
use super::order::Order;
use super::output::Output;
use super::{KILL, TERMINATE};
use crate::INNER_CALL;
use crate::client::LOST_RETRY;
use crate::client::link::connect;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::farm::MARK;
use crate::mpi::{find_program, why_not_found};
use nix::sys::signal::{SigSet, Signal};
use protocol::agent::ExitKind;
use protocol::cluster::client::{Answer, Ask, LogPlace, NO_COORDINATOR, NO_JOB};
use protocol::cluster::client::{RestartRequest, RunRequest};
use protocol::cluster::settings::JobSettings;
use protocol::launch::{LaunchSpec, StreamKind};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const WHAT: &str = "run a task on the cluster";
/// How often a job is tried to be begun while there are machines for it.
const TRIES: u32 = 5;
/// How long it is waited after one that could not be, twice as long after the next, and so on.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of a job is waited for that is to be killed, and until a second signal. The farm removes it later.
const LAST_BREATH: Duration = Duration::from_secs(20);
/// How long it is waited for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the farm wants of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// That it is asked to end.
    Terminate,
    /// That it is ended.
    Kill,
}

impl Wish {
    /// How many signals that takes.
    fn signals(self) -> u32 {
        match self {
            Self::Terminate => 1,
            Self::Kill => 2,
        }
    }
}

/// How a conversation has ended.
enum Talk {
    /// The job has ended.
    Ended(ExitKind),
    /// Nobody answers any more.
    Lost,
    /// Nothing was begun.
    Refused(String),
    /// The job could not be made.
    NotMade(String),
    /// The cluster has given the job up.
    GivenUp(String),
}

/// How the job is.
enum Standing {
    /// There is none.
    Unknown,
    /// It runs, or is being made; or it has ended by itself.
    There,
    /// It is at rest; and whether it has a checkpoint.
    Rests(bool),
}

struct Errand {
    order: Order,
    cluster: Cluster,
    request: RunRequest,
    said: File,
    output: Output,
    wishes: UnboundedReceiver<Wish>,
    wish: Option<Wish>,
    killed_at: Option<Instant>,
}

/// Has a task run; what has come of it is in the file beside what is said.
///
/// # Errors
/// Where it can't be begun, and where nothing can be written.
pub fn run(order: &str, program: Vec<OsString>) -> Result<u8, Failure> {
    let order = Order::read(order)
        .map_err(|error| Failure::of(WHAT, format!("read the order: {error}")))?;
    let said = order.said.clone();
    let failed = |error: std::io::Error| Failure::of(WHAT, error);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let came = runtime.block_on(async { Ok::<_, Failure>(Errand::of(order, program)?.go().await) });
    // The thread that reads answers ends with the process.
    runtime.shutdown_background();
    came?.write(&said).map_err(failed)?;
    Ok(0)
}

impl Errand {
    fn of(order: Order, program: Vec<OsString>) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of(WHAT, error);
        let (tell, wishes) = unbounded_channel();
        for (number, wish) in [(TERMINATE, Wish::Terminate), (KILL, Wish::Kill)] {
            let mut heard = signal(SignalKind::from_raw(number as i32)).map_err(failed)?;
            let tell = tell.clone();
            protocol::task::spawn(async move {
                while heard.recv().await.is_some() && tell.send(wish).is_ok() {}
            });
        }
        // They were held until now.
        let mut held = SigSet::empty();
        held.add(TERMINATE);
        held.add(KILL);
        held.thread_unblock().map_err(|errno| failed(errno.into()))?;
        let own = [INNER_CALL, MARK];
        let directory = std::env::current_dir().map_err(failed)?;
        let launch = LaunchSpec {
            environment: std::env::vars_os()
                .filter(|(name, _)| own.iter().all(|own| name != own))
                .collect(),
            stdin: StreamKind::Inherit,
            ..LaunchSpec::through_pipes(program, directory)
        };
        let settings = JobSettings { interval: order.interval, ..JobSettings::default() };
        let name = Some(order.job.clone());
        Ok(Self {
            cluster: Cluster::at(order.socket.clone()),
            request: RunRequest { name, launch, settings, detach: false, anywhere: true },
            said: File::options().append(true).open(&order.said).map_err(failed)?,
            output: Output::own().map_err(failed)?,
            order,
            wishes,
            wish: None,
            killed_at: None,
        })
    }

    /// For the worker.
    fn say(&mut self, text: &str) {
        // A full disk is told of by others.
        let _ = writeln!(self.said, "ckptd: {text}");
    }

    async fn go(mut self) -> Came {
        let mut ask = Ask::Run(Box::new(self.request.clone()));
        let mut tries = 0;
        loop {
            let mut given_up = None;
            let refused = match self.talk(&ask).await {
                Talk::Ended(status) => return self.ended(status).await,
                Talk::GivenUp(reason) => {
                    given_up = Some(reason);
                    None
                }
                Talk::Lost => None,
                // There may be one of that name: this task's.
                Talk::Refused(reason) => Some(reason),
                Talk::NotMade(reason) => {
                    self.say(&format!("warning: {reason}"));
                    tries += u32::from(self.has_machines());
                    if let Some(status) =
                        self.own_fault().or((tries >= TRIES).then_some(crate::EXIT_NOT_EXECUTABLE))
                    {
                        self.output.tell(&format!("ckptd: failed to begin this task: {reason}\n"));
                        return Came::Ended(ExitKind::Exited(status));
                    }
                    self.pause(PAUSE * (1 << tries)).await;
                    None
                }
            };
            if self.is_over() {
                return Came::Ended(ExitKind::Signalled(Signal::SIGKILL as i32));
            }
            ask = match (self.standing(), refused) {
                (Ok(Standing::Unknown), Some(reason)) => return Came::NotNow(reason),
                (Ok(Standing::Unknown), None) => Ask::Run(Box::new(self.request.clone())),
                (Ok(Standing::There), _) => {
                    if matches!(ask, Ask::Attach { .. }) {
                        // It has just begun or ended to be there.
                        self.pause(LOST_RETRY).await;
                    }
                    // Where that fails, what is there is broken, and written anew at the end.
                    let _ = self.output.clear();
                    Ask::Attach {
                        job: self.order.job.clone(),
                        window: None,
                        shown: Some(LogPlace::default()),
                    }
                }
                (Ok(Standing::Rests(_)), _) if given_up.is_some() => {
                    return Came::Stuck(given_up.unwrap_or_default());
                }
                (Ok(Standing::Rests(true)), _) => Ask::Restart(Box::new(self.restart())),
                (Ok(Standing::Rests(false)), _) => {
                    // It has come to nothing: begun anew.
                    let _ = self.cluster.ask(WHAT, &Ask::Remove { job: self.order.job.clone() });
                    let _ = self.output.clear();
                    Ask::Run(Box::new(self.request.clone()))
                }
                // Nobody answers.
                (Err(_), _) => {
                    self.pause(LOST_RETRY).await;
                    ask
                }
            };
        }
    }

    fn restart(&self) -> RestartRequest {
        RestartRequest {
            job: self.order.job.clone(),
            checkpoint: None,
            force: false,
            settings: None,
            window: None,
            detach: false,
        }
    }

    /// The status of a task whose program is not here either, as a shell has it.
    fn own_fault(&self) -> Option<u8> {
        let LaunchSpec { program, working_directory, .. } = &self.request.launch;
        let program = program.first()?;
        let path = std::env::var_os("PATH");
        match find_program(program, path.as_deref(), working_directory) {
            Some(_) => None,
            None => Some(why_not_found(program, working_directory).1),
        }
    }

    /// Whether there is any machine that takes processes.
    fn has_machines(&self) -> bool {
        let nodes = self.cluster.listing(WHAT, &Ask::Nodes).unwrap_or_default();
        super::places::of(&nodes, "") > 0
    }

    fn standing(&self) -> Result<Standing, Failure> {
        let ask = Ask::Status { job: Some(self.order.job.clone()) };
        let answer = self.cluster.answer_within(&ask, PATIENCE);
        match answer.map_err(|error| Failure::of(WHAT, error))? {
            Some(Answer::Listing { value }) => Ok(standing_of(&value)),
            Some(Answer::Failed { reason, .. }) if reason.starts_with(NO_JOB) => {
                Ok(Standing::Unknown)
            }
            Some(other) => Err(crate::client::refusal::unexpected(WHAT, &other)),
            None => Err(Failure::of(WHAT, "there is no answer")),
        }
    }

    async fn talk(&mut self, ask: &Ask) -> Talk {
        let Ok((mut sender, mut answers)) = connect(&self.order.socket, ask) else {
            return Talk::Lost;
        };
        let mut is_known = !matches!(ask, Ask::Run(_) | Ask::Restart(_));
        let mut runs = false;
        let mut told = 0;
        loop {
            // The second one kills. What nobody hears is noticed by the reader, and told again in the next conversation.
            let to_be_told = self.wish.filter(|_| is_known).map_or(0, Wish::signals);
            while told < to_be_told {
                let _ = sender.send(&Ask::Signal { signal: Signal::SIGTERM as i32 });
                told += 1;
            }
            let answer = tokio::select! {
                Some(wish) = self.wishes.recv() => {
                    self.wished(wish);
                    continue;
                }
                answer = answers.recv() => answer,
                () = until(self.killed_at.map(|at| at + LAST_BREATH)) => return Talk::Lost,
            };
            match answer {
                Some(Ok(Answer::Accepted { .. })) => is_known = true,
                Some(Ok(Answer::Started { .. })) => (is_known, runs) = (true, true),
                Some(Ok(Answer::Output { stream, bytes, at })) => {
                    self.output.put(stream, &bytes, at)
                }
                Some(Ok(Answer::Say { text })) => self.say(&text),
                Some(Ok(Answer::Ended { status, .. })) => return Talk::Ended(status),
                Some(Ok(Answer::Failed { reason, .. })) if reason == NO_COORDINATOR => {
                    return Talk::Lost;
                }
                Some(Ok(Answer::Failed { reason, .. })) => {
                    return match (is_known, runs) {
                        (_, true) => Talk::GivenUp(reason),
                        (true, false) if matches!(ask, Ask::Restart(_)) => Talk::GivenUp(reason),
                        (true, false) if matches!(ask, Ask::Run(_)) => Talk::NotMade(reason),
                        _ => Talk::Refused(reason),
                    };
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Talk::Lost,
            }
        }
    }

    fn wished(&mut self, wish: Wish) {
        if self.wish != Some(Wish::Kill) {
            self.wish = Some(wish);
        }
        if wish == Wish::Kill {
            self.killed_at.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the task was to be killed, and nobody is there who could do that. The farm has the job removed.
    fn is_over(&self) -> bool {
        self.killed_at.is_some_and(|at| at.elapsed() >= LAST_BREATH)
    }

    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            Some(wish) = self.wishes.recv() => self.wished(wish),
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Its output is there before the task counts as ended.
    async fn ended(&mut self, status: ExitKind) -> Came {
        loop {
            match (self.wish, self.standing()) {
                // A task that the farm has had ended needs nothing more.
                (Some(_), _) => {}
                (None, Ok(Standing::Rests(_))) => return Came::Asked,
                (None, Ok(Standing::There)) => {}
                (None, Ok(Standing::Unknown)) => {
                    let text = "its job was removed: some of what it has written may be missing";
                    self.output.tell(&format!("ckptd: {text}\n"));
                    return Came::Ended(status);
                }
                (None, Err(failure)) => {
                    self.say(&format!("warning: {failure}; trying again"));
                    self.pause(LOST_RETRY).await;
                    continue;
                }
            }
            match self.output.finish(&self.cluster, &self.order.job) {
                Ok(()) => return Came::Ended(status),
                Err(failure) => self.say(&format!("warning: {failure}; trying again")),
            }
            if self.wish.is_some() {
                return Came::Ended(status);
            }
            self.pause(PAUSE).await;
        }
    }
}

fn standing_of(status: &Value) -> Standing {
    match status["state"].as_str() {
        Some("interrupted") => {
            let has_checkpoint =
                status["checkpoints"].as_array().is_some_and(|all| !all.is_empty());
            Standing::Rests(has_checkpoint)
        }
        _ => Standing::There,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_rests_is_brought_back_where_it_has_a_checkpoint() {
        let standing = |state: &str, checkpoints: Value| {
            standing_of(&json!({ "state": state, "checkpoints": checkpoints }))
        };
        assert!(matches!(standing("interrupted", json!([{}])), Standing::Rests(true)));
        assert!(matches!(standing("interrupted", json!([])), Standing::Rests(false)));
        for state in ["running", "starting", "restoring", "ended"] {
            assert!(matches!(standing(state, json!([{}])), Standing::There));
        }
    }
}
