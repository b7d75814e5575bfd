//! A restore in a process of its own: as an agent of the user's own, or as root's for that user.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ckpt_engine::{InstanceOrder, RestoreOrder, Session, UserOrder};
use protocol::agent::InstanceId;
use protocol::cluster::InstanceKey;
use protocol::launch::{External, RestoreSpec};

/// The argument under which this program does it: then the job's folder, the checkpoint, and the user of a root agent.
pub const FLAG: &str = "--restore";

/// Says "made PID", the init's, or "refused WHY" on one line. A job that was made ends when there is no more input.
pub fn serve(folder: &str, checkpoint: &str, user: Option<UserOrder>) -> ExitCode {
    let folder = PathBuf::from(folder);
    let Ok(checkpoint) = checkpoint.parse() else { return ExitCode::from(2) };
    let Ok(session) = Session::start(folder.clone(), |_| {}) else { return ExitCode::from(3) };
    let answer = match session.restore(order(&folder, checkpoint, user)) {
        Ok(started) => format!("made {}", started.init),
        Err(error) => format!("refused {error:}"),
    };
    if writeln!(std::io::stdout(), "{answer}").is_err() {
        return ExitCode::from(4);
    }
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    session.kill();
    ExitCode::SUCCESS
}

fn order(folder: &Path, checkpoint: u64, user: Option<UserOrder>) -> RestoreOrder {
    let instance = InstanceOrder {
        identity: InstanceKey { job: "job".into(), epoch: 1, instance: InstanceId(1) },
        host_name: "graphs".into(),
        hosts: String::new(),
        socket: folder.join("init.sock"),
        calls: None,
        lease_until_ns: u64::MAX,
        hold: true,
        root_instance: true,
        external: External::Warn,
        user,
        shell: None,
        watch: None,
        crowded: false,
    };
    let spec = RestoreSpec {
        checkpoint,
        force: true,
        external: External::Warn,
        window: None,
        file_check: None,
    };
    RestoreOrder { instance: Some(instance), ..RestoreOrder::alone(spec) }
}
