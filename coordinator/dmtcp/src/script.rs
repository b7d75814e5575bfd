//! The restart script: what a user of DMTCP runs to go on from a checkpoint.

use super::machine::{Checkpoint, Image};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The script's name without the computation's, which links to the newest.
pub const LINK: &str = "dmtcp_restart_script.sh";

/// The script that restarts the checkpoint with a coordinator at `host` and `port`.
#[must_use]
pub fn text(checkpoint: &Checkpoint, host: &str, port: u16) -> String {
    let mut hosts: BTreeMap<(&str, &str), Vec<&Image>> = BTreeMap::new();
    for image in &checkpoint.images {
        let name = &image.name;
        hosts.entry((name.host.as_str(), name.shell.as_str())).or_default().push(image);
    }
    let single = hosts.len() <= 1;
    let mut script = format!(
        "#!/bin/sh\n\
         # Restarts {} processes of the computation {}, from its checkpoint {}.\n\
         # Options: -h HOST, -p PORT of the coordinator; -i SECONDS between checkpoints; -d DIR where the\n\
         # images are now; -t DIR for temporary files. Those of other hosts are started there by ssh.\n\
         coord_host=${{DMTCP_COORD_HOST:-{}}}\n\
         coord_port=${{DMTCP_COORD_PORT:-{port}}}\n\
         interval=${{DMTCP_CHECKPOINT_INTERVAL:-{}}}\n\
         restart_dir=${{DMTCP_RESTART_DIR:-}}\n\
         tmp_dir=${{DMTCP_TMPDIR:-}}\n\
         more=\n",
        checkpoint.images.len(),
        checkpoint.group,
        checkpoint.group.generation,
        quoted(host),
        checkpoint.interval,
    );
    script.push_str(OPTIONS);
    script.push_str("restart=${DMTCP_RESTART:-dmtcp_restart}\n");
    script.push_str("join=");
    script.push_str(if single { "\n" } else { "--join-coordinator\n" });
    script.push_str(
        "set -- --coord-host \"$coord_host\" --coord-port \"$coord_port\" --interval \"$interval\" $join $more \\\n\
         \x20   ${tmp_dir:+--tmpdir \"$tmp_dir\"}\n\
         at() { if [ -n \"$restart_dir\" ]; then echo \"$restart_dir/${1##*/}\"; else echo \"$1\"; fi; }\n\
         here() { [ \"$1\" = \"$(hostname)\" ] || [ \"$1\" = \"$(hostname -s 2>/dev/null)\" ]; }\n",
    );
    for ((host, shell), images) in hosts {
        let shell = if shell.is_empty() { "ssh" } else { shell };
        // A string takes all.
        let _ = writeln!(script, "\n# {host}\nimages=");
        for image in images {
            let _ = writeln!(script, "images=\"$images $(at {})\"", quoted(&image.name.path));
        }
        if single {
            script.push_str("exec $restart \"$@\" $images\n");
        } else {
            let host = quoted(host);
            let _ = writeln!(
                script,
                "if here {host}; then $restart \"$@\" $images &\nelse {shell} {host} $restart \"$@\" $images & fi"
            );
        }
    }
    if !single {
        script.push_str("\nwait\n");
    }
    script
}

const OPTIONS: &str = "\
while [ $# -gt 0 ]; do
  case $1 in
    -h|--coord-host|--host) coord_host=$2; shift 2;;
    -p|--coord-port|--port) coord_port=$2; shift 2;;
    -i|--interval) interval=$2; shift 2;;
    -d|--restartdir) restart_dir=$2; shift 2;;
    -t|--tmpdir) tmp_dir=$2; shift 2;;
    --ckptdir|--coord-logfile) more=\"$more $1 $2\"; shift 2;;
    --no-strict-checking) more=\"$more $1\"; shift;;
    --help) sed -n '2,4s/^# //p' \"$0\"; exit 0;;
    *) echo \"$0: unknown option $1; --help lists them\" >&2; exit 1;;
  esac
done
";

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,%=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Writes the script into a folder, under the computation's name, with [`LINK`] leading there; its path.
///
/// # Errors
/// Where the system refuses.
pub fn write(folder: &Path, checkpoint: &Checkpoint, host: &str, port: u16) -> io::Result<PathBuf> {
    let group = checkpoint.group;
    let name = if checkpoint.unique_names {
        format!("dmtcp_restart_script_{group}_{:05}.sh", group.generation)
    } else {
        format!("dmtcp_restart_script_{group}.sh")
    };
    let path = folder.join(&name);
    let new = folder.join(format!(".{name}.new"));
    // Somebody's link would be followed.
    let _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&new)?;
    io::Write::write_all(&mut file, text(checkpoint, host, port).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    let link = folder.join(format!(".{LINK}.new"));
    let _ = fs::remove_file(&link);
    symlink(&name, &link)?;
    fs::rename(&link, folder.join(LINK))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Identity;
    use crate::wire::ImageName;
    use std::net::Ipv4Addr;
    use std::process::Command;

    fn checkpoint(images: &[(&str, &str)]) -> Checkpoint {
        let images = images
            .iter()
            .map(|(host, path)| Image {
                name: ImageName {
                    host: (*host).to_owned(),
                    shell: String::new(),
                    path: (*path).to_owned(),
                },
                identity: Identity::default(),
                program: "p".into(),
                remote: Ipv4Addr::LOCALHOST,
                owner: None,
            })
            .collect();
        Checkpoint {
            group: Identity { host: 0x98ff, time: 0x77, pid: 40000, generation: 3 },
            begun_at_ms: 0,
            took_us: 0,
            images,
            unique_names: false,
            interval: 5,
            kills: false,
        }
    }

    fn run(script: &Path, arguments: &[&str]) -> String {
        let out = Command::new("sh")
            .arg(script)
            .args(arguments)
            .env("DMTCP_RESTART", "echo")
            .env_remove("DMTCP_COORD_HOST")
            .env_remove("DMTCP_COORD_PORT")
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn one_host_is_restarted_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(&[("vm", "/c/a.dmtcp"), ("vm", "/c/b.dmtcp")]);
        let path = write(folder.path(), &checkpoint, "vm", 7779).unwrap();
        write(folder.path(), &checkpoint, "vm", 7779).unwrap();
        assert!(path.ends_with("dmtcp_restart_script_98ff-40000-77.sh"));
        let told = run(&folder.path().join(LINK), &["-p", "9"]);
        assert_eq!(
            told.trim(),
            "--coord-host vm --coord-port 9 --interval 5 /c/a.dmtcp /c/b.dmtcp"
        );
        let told = run(&path, &["-d", "/new", "-t", "/t"]);
        assert!(told.trim().ends_with("--tmpdir /t /new/a.dmtcp /new/b.dmtcp"), "{told}");
    }

    #[test]
    fn names_are_never_commands() {
        let folder = tempfile::tempdir().unwrap();
        let evil = checkpoint(&[("vm", "/c/$(touch$IFS/tmp/evil)'`id`.dmtcp")]);
        let path = write(folder.path(), &evil, "a'b", 1).unwrap();
        let told = run(&path, &[]);
        assert!(told.contains("$(touch$IFS/tmp/evil)'`id`.dmtcp"), "{told}");
        assert!(told.contains("a'b"), "{told}");
    }
}
